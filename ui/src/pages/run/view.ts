// What the Run page shows, as its address says.

import { AXES, type AxisName } from "../../charts/axis";
import type { Zoom } from "../../charts/options";
import { type Smoothing, SMOOTHINGS } from "../../charts/smoothing";
import type { Params } from "../../state/route";

export interface View {
  zoom: { from: number; to: number | undefined } | null;
  newest: string;
  smoothing: Smoothing;
  x: AxisName;
  isLog: boolean;
  extras: string[];
  /** The step whose differences are shown. */
  step: number | undefined;
}

/** A step; undefined for anything else, and for what is no step of any run. */
const whole = (text: string | undefined) => (text && /^\d{1,15}$/.test(text) ? Number(text) : undefined);

export function viewOf(params: Params): View {
  const [from, to] = [whole(params.from), whole(params.to)];
  return {
    zoom: from !== undefined || to !== undefined ? { from: from ?? 1, to } : null,
    newest: String(whole(params.newest) ?? ""),
    smoothing: SMOOTHINGS.find((one) => one === params.smooth) ?? "some",
    x: AXES.find((one) => one === params.x) ?? "step",
    isLog: params.y === "log",
    step: whole(params.step),
    extras: (params.metrics ?? "").split(",").filter(Boolean),
  };
}

/** The x axis; null = as far as the points reach. */
export function rangeOf({ zoom, newest }: View, last: number): Zoom | null {
  if (zoom) {
    return { from: zoom.from, to: zoom.to ?? last };
  }
  return newest && last > Number(newest) ? { from: last - Number(newest) + 1, to: last } : null;
}
