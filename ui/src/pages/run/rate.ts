// How fast the run goes, from when its last steps were done.

import type { Row } from "../../api/types";

const MOST = 50;

/** Adds steps to the newest ones kept. */
export function keep(times: Row[], rows: Row[]): Row[] {
  return [...times, ...rows].slice(-MOST);
}

/** Seconds a step, over the steps kept; null where fewer than two are known. */
export function secondsPerStep(rows: Row[]): number | null {
  const [first, last] = [rows[0], rows.at(-1)];
  if (!first || !last || typeof first.t !== "number" || typeof last.t !== "number") {
    return null;
  }
  const steps = Number(last.step) - Number(first.step);
  return steps > 0 ? (last.t - first.t) / steps : null;
}
