import { useMemo } from "preact/hooks";

import type { Points } from "../../api/types";
import { ChartCard, type CardCurve } from "../../charts/card";
import { type ChartSpec, PHASES, REST } from "../../charts/catalog";
import type { Zoom } from "../../charts/options";
import type { Smoothing } from "../../charts/smoothing";
import { seriesColour } from "../../charts/paint";
import { nearest } from "../../charts/points";
import type { Loaded } from "../../state/series";

interface Props {
  charts: ChartSpec[];
  loaded: Loaded;
  range: Zoom | null;
  smoothing: Smoothing;
  onZoom: (zoom: Zoom | null) => void;
}

const NO_POINTS: Points = { x: [], y: [] };

/** What a step's known phases leave of its seconds. */
function rest(series: Loaded["series"]): Points {
  const { x, y } = series.seconds ?? NO_POINTS;
  return {
    x,
    y: y.map((seconds, at) => {
      const known = PHASES.reduce((sum, { name }) => sum + (nearest(series[name] ?? NO_POINTS, x[at] ?? 0) ?? 0), 0);
      return seconds === null ? null : Math.max(0, seconds - known);
    }),
  };
}

function pointsOf(name: string, { kind }: ChartSpec, loaded: Loaded): Points {
  if (kind === "evals") {
    const evals = loaded.evals.toSorted((a, b) => a.version - b.version);
    return { x: evals.map((one) => one.version), y: evals.map((one) => one.accuracy) };
  }
  return name === REST ? rest(loaded.series) : (loaded.series[name] ?? NO_POINTS);
}

export function Charts({ charts, loaded, range, smoothing, onZoom }: Props) {
  const curves = useMemo(
    () =>
      charts.map((chart) =>
        chart.curves.map(
          ({ name, label }, at): CardCurve => ({
            label,
            colour: seriesColour(at),
            points: pointsOf(name, chart, loaded),
          }),
        ),
      ),
    [charts, loaded.series, loaded.evals],
  );
  return (
    <section class="charts" aria-label="Charts">
      {charts.map((chart, at) => (
        <ChartCard
          key={chart.id}
          title={chart.title}
          hint={chart.hint}
          curves={curves[at] ?? []}
          kind={chart.kind === "evals" ? "dots" : (chart.kind ?? "lines")}
          sync="run"
          range={range}
          smoothing={smoothing}
          onZoom={onZoom}
          {...(chart.format ? { format: chart.format } : {})}
        />
      ))}
    </section>
  );
}
