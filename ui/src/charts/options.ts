// One look for all charts.

import uPlot from "uplot";

import { colour, withAlpha } from "./paint";
import { span } from "./points";

export interface Line {
  label: string;
  /** Custom property with its colour. */
  colour: string;
  /** Drawn behind, as the raw numbers of a smoothed curve. */
  isFaint?: boolean;
  hasDots?: boolean;
}

export interface Zoom {
  from: number;
  to: number;
}

export interface Look {
  lines: Line[];
  isStacked: boolean;
  sync: string;
  /** A logarithmic scale: all values are above 0. */
  isLog: boolean;
  format: (value: number | null) => string;
  formatX: (value: number) => string;
  range: () => Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
  onPick: (x: number) => void;
  onCursor: (x: number | null) => void;
}

/** Within this time a second click makes a double click. */
const DOUBLE_MS = 250;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

function axis(format: (value: number) => string, size: uPlot.Axis.Size, space: number): uPlot.Axis {
  return {
    stroke: colour("--muted"),
    font: FONT,
    size,
    space,
    gap: 4,
    grid: { stroke: colour("--grid"), width: 1 },
    ticks: { show: false },
    values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))),
  };
}

function series(look: Look): uPlot.Series[] {
  return look.lines.map((line) => {
    const stroke = colour(line.colour);
    return {
      label: line.label,
      stroke: line.isFaint ? withAlpha(stroke, 0.28) : stroke,
      width: line.isFaint || look.isStacked ? 1 : 1.5,
      points: line.hasDots ? { show: true, size: 6, fill: stroke } : { show: false },
      ...(look.isStacked ? { fill: withAlpha(stroke, 0.5) } : {}),
    };
  });
}

function takeSelection(plot: uPlot, onZoom: (zoom: Zoom | null) => void): void {
  const { left, width } = plot.select;
  if (width < 4) {
    return;
  }
  const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom({ from, to });
}

/** A click picks a step, unless it is the first of two. uPlot gives no click at the end of a drag. */
function addPick(plot: uPlot, onPick: (x: number) => void): void {
  let waiting = 0;
  plot.over.addEventListener("click", ({ detail, offsetX }) => {
    clearTimeout(waiting);
    waiting = detail === 1 ? window.setTimeout(() => onPick(plot.posToVal(offsetX, "x")), DOUBLE_MS) : 0;
  });
}

/** Options of a plot with a mouse: drag to zoom, double click to see all, click to pick a step. */
export function options(look: Look, width: number, height: number): uPlot.Options {
  const bands = look.lines.slice(1).map((_, at) => ({ series: [at + 2, at + 1] as [number, number] }));
  const wide = (_: uPlot, values: string[] | null) => 12 + 6.4 * Math.max(1, ...(values ?? []).map((one) => one.length));
  return {
    width,
    height,
    padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: look.sync, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { size: 7 },
      bind: {
        dblclick: () => () => {
          look.onZoom(null);
          return null;
        },
      },
    },
    scales: {
      x: {
        time: false,
        range: (_, low, high) => {
          const zoom = look.range();
          const [from, to] = zoom ? [zoom.from, zoom.to] : [low ?? 0, high ?? 1];
          return from < to ? [from, to] : [from - 1, from + 1];
        },
      },
      y: look.isLog
        ? { distr: 3, range: (_, low, high) => uPlot.rangeLog(low, high, 10, false) }
        : { range: (_, low, high) => span(look.isStacked ? 0 : low, high) },
    },
    axes: [axis(look.formatX, 26, 64), axis((value) => look.format(value).replace(/\.0+%$/, "%"), wide, 34)],
    series: [{}, ...series(look)],
    ...(look.isStacked ? { bands } : {}),
    hooks: {
      ready: [(plot) => addPick(plot, look.onPick)],
      setSelect: [(plot) => takeSelection(plot, look.onZoom)],
      setCursor: [
        (plot) => {
          const { left } = plot.cursor;
          look.onCursor(left === undefined || left < 0 ? null : plot.posToVal(left, "x"));
        },
      ],
    },
  };
}
