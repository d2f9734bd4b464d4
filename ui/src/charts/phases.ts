// Where the time of a step goes: one band a phase, as the trainer measures them; the small ones are part of the rest.

import type { Points } from "../api/types";
import type { Curve } from "./catalog";
import { SERIES } from "./paint";
import { nearest, NO_POINTS } from "./points";

const KEY = "phase_seconds_";
const phase = (name: string, label = name.replaceAll("_", " ")) => ({ name: KEY + name, label });

/** From the bottom up. The first few are in every run, so that their colours are always the same. */
export const PHASES: Curve[] = [
  phase("policy_update"),
  phase("wait", "wait for batch"),
  phase("old_logprobs"),
  phase("reference"),
  phase("critic_update"),
  phase("optimizer"),
  phase("publication_wait"),
  phase("values"),
  phase("discriminator"),
  phase("snapshot"),
  phase("journal"),
  phase("record"),
  phase("checkpoint"),
  phase("advantages"),
  phase("turn"),
];
export const OTHER = phase("other");

/** Of a run whose trainer measured no more than these; what they leave of `seconds` is drawn as the rest. A stage on given
 * examples has not even these. */
export const PARTS: Curve[] = [
  { name: "train_seconds", label: "train" },
  { name: "wait_batch_seconds", label: "wait for batch" },
];
export const WHOLE = "seconds";

const SMALL = 0.01;
export interface Band {
  label: string;
  /** Number of its colour. */
  slot: number;
  points: Points;
}

type Series = Record<string, Points>;

/** A phase that a step did not have took no time. */
const filled = ({ x, y }: Points): Points => ({ x, y: y.map((value) => value ?? 0) });

function mean({ y }: Points): number {
  return y.reduce<number>((sum, value) => sum + (value ?? 0), 0) / Math.max(1, y.length);
}

/** One more onto `base`, at its steps. */
const added = (base: Points, more: Points): Points => ({
  x: base.x,
  y: base.y.map((value, at) => (value ?? 0) + (nearest(more, base.x[at] ?? 0) ?? 0)),
});

/** Its own colour, or the next one that is free. */
function slotOf(preferred: number, taken: Set<number>): number {
  let slot = preferred % (SERIES - 1);
  while (taken.has(slot)) {
    slot = (slot + 1) % (SERIES - 1);
  }
  taken.add(slot);
  return slot;
}

function parts(series: Series): Band[] {
  const whole = series[WHOLE] ?? NO_POINTS;
  const { x, y } = whole;
  if (!PARTS.some(({ name }) => series[name])) {
    return [{ label: "step", slot: 0, points: whole }];
  }
  const known = PARTS.map(({ name, label }, slot) => ({ label, slot, points: series[name] ?? NO_POINTS }));
  const left = y.map((seconds, at) => {
    const named = known.reduce((sum, { points }) => sum + (nearest(points, x[at] ?? 0) ?? 0), 0);
    return seconds === null ? null : Math.max(0, seconds - named);
  });
  return [...known, { label: "rest", slot: known.length, points: { x, y: left } }];
}

/** The bands of the chart from the bottom up, at most as many as there are colours. */
export function stepTime(series: Series): Band[] {
  const known = PHASES.flatMap(({ name, label }, at) => {
    const points = series[name];
    return points ? [{ label, at, points: filled(points) }] : [];
  });
  if (known.length === 0) {
    return parts(series);
  }
  const other = filled(series[OTHER.name] ?? NO_POINTS);
  const whole = known.reduce((sum, { points }) => sum + mean(points), mean(other));
  const largest = known
    .toSorted((a, b) => mean(b.points) - mean(a.points))
    .slice(0, SERIES - 1)
    .filter(({ points }) => mean(points) >= SMALL * whole);
  const taken = new Set<number>();
  const bands = known
    .filter((one) => largest.includes(one))
    .map(({ label, at, points }) => ({ label, slot: slotOf(at, taken), points }));
  const rest = known.filter((one) => !largest.includes(one)).reduce((sum, { points }) => added(sum, points), other);
  return [...bands, { label: OTHER.label, slot: SERIES - 1, points: rest }];
}
