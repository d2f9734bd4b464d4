// How much a curve is smoothed: by a share of what is in sight, so that it looks alike at every zoom.

import type { Points } from "../api/types";

export const SMOOTHINGS = ["off", "some", "much"] as const;
export type Smoothing = (typeof SMOOTHINGS)[number];

const REACH = { some: { share: 0.01, least: 4 }, much: { share: 0.05, least: 12 } };

/** Weight of the past per step for `smooth`; 0 = as measured. */
export function weightOf(smoothing: Smoothing, { x }: Points): number {
  if (smoothing === "off") {
    return 0;
  }
  const { share, least } = REACH[smoothing];
  const steps = Math.max(least, share * ((x.at(-1) ?? 0) - (x[0] ?? 0)));
  return Math.exp(-1 / steps);
}
