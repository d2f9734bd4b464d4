// Colours of the style sheet as a canvas needs them.

let probe: HTMLElement | null = null;

/** What a custom property such as `--series-1` is in the present theme. */
export function colour(name: string): string {
  if (probe === null) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

export function withAlpha(rgb: string, alpha: number): string {
  const [red, green, blue] = rgb.match(/[\d.]+/g) ?? ["0", "0", "0"];
  return `rgb(${red} ${green} ${blue} / ${alpha})`;
}

export const SERIES = 8;
export const seriesColour = (at: number) => `--series-${(at % SERIES) + 1}`;
