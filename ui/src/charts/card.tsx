import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";

import type { Points } from "../api/types";
import { num } from "../format";
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
  hint?: string;
  curves: CardCurve[];
  sync: string;
  range: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
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

/** A chart with its title and the values under the cursor, or the latest ones. */
export function ChartCard(props: Props) {
  const { title, hint, curves, smoothing = "off", kind = "lines", height = 168, format = num } = props;
  const cursor = useSignal<number | null>(null);
  const { lines, data } = useMemo(() => drawn(curves, smoothing, kind), [curves, smoothing, kind]);
  const isEmpty = data.x.length === 0;
  return (
    <figure class="card chart" aria-label={title}>
      <figcaption>
        <h3 title={hint}>{title}</h3>
        <Values curves={curves} cursor={cursor.value} format={format} />
      </figcaption>
      {isEmpty ? (
        <p class="chart-empty">No numbers yet</p>
      ) : (
        <Plot
          lines={lines}
          data={data}
          label={summary(props)}
          sync={props.sync}
          range={props.range}
          height={height}
          isStacked={kind === "stack"}
          format={format}
          onZoom={props.onZoom}
          onCursor={(step) => {
            cursor.value = step;
          }}
        />
      )}
    </figure>
  );
}

function Values(props: { curves: CardCurve[]; cursor: number | null; format: (value: number | null) => string }) {
  const { curves, cursor, format } = props;
  return (
    <ul class="legend">
      {curves.map(({ label, colour, points }) => (
        <li key={label}>
          <span class={`swatch ${colour.slice(2)}`} aria-hidden="true" />
          {curves.length > 1 && <span class="legend-label">{label}</span>}
          <span class="legend-value">{format(cursor === null ? latest(points) : nearest(points, cursor))}</span>
        </li>
      ))}
    </ul>
  );
}
