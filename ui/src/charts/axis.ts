// What the charts are drawn along: steps, or the time or the tokens that the run had taken at a step.

import type { Points } from "../api/types";
import { duration, num } from "../format";
import { along } from "./points";

export const AXES = ["step", "time", "tokens"] as const;
export type AxisName = (typeof AXES)[number];

export interface Axis {
  /** Where a step lies. */
  of: (step: number) => number;
  /** Which step lies there, between two steps a fraction. */
  step: (x: number) => number;
  format: (x: number) => string;
}

export const STEPS: Axis = { of: (step) => step, step: (x) => x, format: (x) => (Number.isInteger(x) ? num(x) : "") };
/** The curve that an axis needs. */
export const CURVES: Record<AxisName, string[]> = { step: [], time: ["t"], tokens: ["trained_tokens_total"] };

/** `began`: unix seconds. Steps, where the run has no such numbers yet. */
export function axisOf(name: AxisName, series: Record<string, Points>, began: number): Axis {
  const points = series[CURVES[name][0] ?? ""];
  if (!points || points.x.length === 0) {
    return STEPS;
  }
  const [x, y] = [points.x, points.y.map((value) => (value ?? 0) - (name === "time" ? began : 0))];
  return { of: along({ x, y }), step: along({ x: y, y: x }), format: name === "time" ? duration : (value) => num(value) };
}
