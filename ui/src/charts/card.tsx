import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";

import type { Points } from "../api/types";
import { num } from "../format";
import { type Axis, STEPS } from "./axis";
import type { Line, Zoom } from "./options";
import { Plot } from "./plot";
import { type Aligned, align, latest, nearest, smooth, stack } from "./points";
import { type Smoothing, weightOf } from "./smoothing";

export interface CardCurve {
  label: string;
  /** Custom property with its colour. */
  colour: string;
  points: Points;
}

interface Props {
  title: string;
  /** What it shows, in a sentence. */
  hint?: string;
  unit?: string;
  curves: CardCurve[];
  sync: string;
  /** Of steps. */
  range: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
  /** A click at a step. */
  onPick?: (step: number) => void;
  axis?: Axis;
  /** A logarithmic scale where all values are above 0. */
  isLog?: boolean;
  smoothing?: Smoothing;
  kind?: "lines" | "stack" | "dots";
  height?: number;
  format?: (value: number | null) => string;
}

interface Drawn {
  lines: Line[];
  data: Aligned;
}

function drawn(curves: CardCurve[], smoothing: Smoothing, kind: NonNullable<Props["kind"]>): Drawn {
  const lines = curves.map(({ label, colour }) => ({ label, colour, hasDots: kind === "dots" }));
  const raw = curves.map((curve) => curve.points);
  const smoothed = raw.map((points) => smooth(points, weightOf(smoothing, points)));
  if (kind === "stack") {
    return { lines, data: stack(smoothed) };
  }
  if (smoothing === "off" || kind === "dots") {
    return { lines, data: align(raw) };
  }
  return { lines: [...lines.map((line) => ({ ...line, isFaint: true })), ...lines], data: align([...raw, ...smoothed]) };
}

function summary({ title, curves, format = num }: Props): string {
  const said = curves.map(({ label, points }) => {
    const known = points.y.filter((value) => value !== null);
    const range = known.length > 0 ? `, between ${format(Math.min(...known))} and ${format(Math.max(...known))}` : "";
    return `${label} now ${format(latest(points))}${range}`;
  });
  return `${title}: ${said.join("; ")}`;
}

const isAbove0 = ({ points }: CardCurve) => points.y.every((value) => value === null || value > 0);

/** A chart with its title, its unit and the values under the cursor, or the latest ones. */
export function ChartCard(props: Props) {
  const { title, hint, unit, curves, range, axis = STEPS, smoothing = "off", kind = "lines", height = 168, format = num } = props;
  const cursor = useSignal<number | null>(null);
  const { lines, data } = useMemo(() => drawn(curves, smoothing, kind), [curves, smoothing, kind]);
  const placed = useMemo(() => ({ x: data.x.map(axis.of), ys: data.ys }), [data, axis]);
  const isLog = props.isLog === true && kind !== "stack" && curves.every(isAbove0);
  const at = cursor.value === null ? null : axis.step(cursor.value);
  const notes = [unit, props.isLog && !isLog && "linear: not all above 0", at !== null && `step ${Math.round(at)}`];
  const zoom = (to: Zoom | null) => {
    const steps = to && { from: Math.ceil(axis.step(to.from)), to: Math.floor(axis.step(to.to)) };
    if (steps === null || steps.to > steps.from) {
      props.onZoom(steps);
    }
  };
  return (
    <figure class="card chart" aria-label={title}>
      <figcaption>
        <h3 title={hint}>{title}</h3>
        <span class="muted small tabular">{notes.filter(Boolean).join(", ")}</span>
        <Values curves={curves} step={at} format={format} />
      </figcaption>
      {data.x.length === 0 ? (
        <p class="chart-empty">No numbers yet</p>
      ) : (
        <Plot
          lines={lines}
          data={placed}
          label={summary(props)}
          sync={props.sync}
          range={range && { from: axis.of(range.from), to: axis.of(range.to) }}
          height={height}
          isStacked={kind === "stack"}
          isLog={isLog}
          format={format}
          formatX={axis.format}
          onZoom={zoom}
          onPick={(x) => props.onPick?.(Math.round(axis.step(x)))}
          onCursor={(x) => {
            cursor.value = x;
          }}
        />
      )}
    </figure>
  );
}

function Values(props: { curves: CardCurve[]; step: number | null; format: (value: number | null) => string }) {
  const { curves, step, format } = props;
  return (
    <ul class="legend">
      {curves.map(({ label, colour, points }) => (
        <li key={label}>
          <span class={`swatch ${colour.slice(2)}`} aria-hidden="true" />
          {curves.length > 1 && <span class="legend-label">{label}</span>}
          <span class="legend-value">{format(step === null ? latest(points) : nearest(points, step))}</span>
        </li>
      ))}
    </ul>
  );
}
