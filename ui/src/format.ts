// Numbers and times as people read them.

const NONE = "\u2013";

/** Four significant digits at most; thousands as k, M, G. */
export function num(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return NONE;
  }
  const size = Math.abs(value);
  if (size === 0) {
    return "0";
  }
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]] as const) {
    if (size >= limit) {
      return `${Number((value / (limit === 1e4 ? 1e3 : limit)).toPrecision(digits))}${unit}`;
    }
  }
  if (size < 1e-3) {
    return value.toExponential(Math.max(0, digits - 2));
  }
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(Math.max(digits, 1))));
}

/** Whole numbers with thousands apart. */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : value.toLocaleString("en");
}

export function percent(value: number | null | undefined, digits = 0): string {
  return value === null || value === undefined ? NONE : `${(100 * value).toFixed(digits)}%`;
}

/** Seconds as `20 µs`, `350 ms`, `4.2 s`, `3 min 10 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) {
    return NONE;
  }
  if (seconds < 0) {
    return "0 ms"; // Two clocks that differ.
  }
  if (seconds > 0 && seconds < 0.0009995) {
    return `${Number((1e6 * seconds).toPrecision(3))} \u00b5s`;
  }
  if (seconds < 0.9995) {
    return `${Math.round(1000 * seconds)} ms`;
  }
  if (seconds < 59.5) {
    return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  }
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]] as const;
  let rest = Math.round(seconds);
  const at = units.findIndex(([, size]) => rest >= size);
  return units
    .slice(at, at + 2)
    .map(([unit, size]) => {
      const whole = Math.floor(rest / size);
      rest -= whole * size;
      return whole > 0 ? `${whole} ${unit}` : "";
    })
    .filter(Boolean)
    .join(" ");
}

/** A time of day; with its date where that is not today. */
export function clock(seconds: number | null | undefined): string {
  if (!seconds) {
    return NONE;
  }
  const at = new Date(1000 * seconds);
  if (Number.isNaN(at.getTime())) {
    return NONE; // No calendar reaches so far.
  }
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${day(seconds)} ${time}`;
}

export function day(seconds: number | null | undefined): string {
  const at = new Date(1000 * (seconds ?? 0));
  return seconds && !Number.isNaN(at.getTime()) ? at.toLocaleDateString("en-CA") : NONE;
}

export function bytes(size: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  const at = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, size)) / 10));
  return `${Number((size / 1024 ** at).toPrecision(3))} ${units[at]}`;
}

/** A version `life.step`: the trainer's life is told where it is not the first. */
export function versionWords(version: string): string {
  const [life, step] = version.split(".");
  return step === undefined ? version : life === "1" ? step : `${step} of life ${life}`;
}

/** One or many: `3 replicas`. */
export function plural(number: number, word: string): string {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
