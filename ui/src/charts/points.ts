// Pure preparation of curves: smoothing, alignment on one x axis, stacking.

import type { Points, Value } from "../api/types";

export const NO_POINTS: Points = { x: [], y: [] };

/** What a chart draws: one x for all; undefined = the curve has no point here, null = the number is missing. */
export interface Aligned {
  x: number[];
  ys: (Value | undefined)[][];
}

/** Exponential moving average over steps; `weight` in [0, 1) is that of the past per step. Gaps stay gaps. */
export function smooth({ x, y }: Points, weight: number): Points {
  let [sum, norm, last] = [0, 0, 0];
  const smoothed = y.map((value, at) => {
    if (value === null) {
      return null;
    }
    const step = x[at] ?? 0;
    const kept = norm === 0 || weight === 0 ? 0 : weight ** Math.max(1, step - last);
    sum = kept * sum + (1 - weight) * value;
    norm = kept * norm + (1 - weight);
    last = step;
    return sum / norm;
  });
  return { x, y: smoothed };
}

export function align(curves: Points[]): Aligned {
  const x = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const at = new Map(x.map((step, index) => [step, index]));
  const ys = curves.map((curve) => {
    const y = new Array<Value | undefined>(x.length).fill(undefined);
    curve.x.forEach((step, index) => {
      y[at.get(step) ?? 0] = curve.y[index] ?? null;
    });
    return y;
  });
  return { x, ys };
}

/** The last place at or before a step; 0 where there is none. */
function placeOf(x: number[], step: number): number {
  let [low, high] = [0, x.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) <= step) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/** A curve's value at any step, on straight lines between its points; beyond them that of the first or last. */
export function along({ x, y }: Points): (step: number) => number {
  return (step) => {
    const at = placeOf(x, step);
    const [x0, y0] = [x[at] ?? 0, y[at] ?? 0];
    const [x1, y1] = [x[at + 1] ?? x0, y[at + 1] ?? y0];
    const share = x1 > x0 ? Math.min(1, Math.max(0, (step - x0) / (x1 - x0))) : 0;
    return y0 + share * (y1 - y0);
  };
}

/** Running sums from the first curve up; between a curve's own points it is interpolated. */
export function stack(curves: Points[]): Aligned {
  const { x } = align(curves);
  const totals = new Array<number>(x.length).fill(0);
  const ys = curves.map((curve) => {
    const value = along(curve);
    return x.map((step, index) => (totals[index] = (totals[index] ?? 0) + Math.max(0, value(step))));
  });
  return { x, ys };
}

/** The curve's value at the point nearest to a step. */
export function nearest({ x, y }: Points, step: number): Value {
  const low = placeOf(x, step);
  const high = Math.min(low + 1, x.length - 1);
  return y[step - (x[low] ?? 0) <= (x[high] ?? 0) - step ? low : high] ?? null;
}

export function latest({ y }: Points): Value {
  return y.findLast((value) => value !== null) ?? null;
}

/** The y axis: from 0 where the numbers lie near it, never of no height. */
export function span(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) {
    return [0, 1];
  }
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return low === 0 ? [0, room] : [low - room, high + room];
  }
  const room = 0.08 * (high - low);
  const bottom = low >= 0 && low < 0.4 * high ? 0 : low - room;
  return [bottom, high <= 0 && high > 0.4 * low ? 0 : high + room];
}
