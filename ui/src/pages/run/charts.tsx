import { useMemo } from "preact/hooks";

import type { Points } from "../../api/types";
import { ChartCard, type CardCurve } from "../../charts/card";
import type { ChartSpec } from "../../charts/catalog";
import type { Zoom } from "../../charts/options";
import type { Smoothing } from "../../charts/smoothing";
import { seriesColour } from "../../charts/paint";
import { stepTime } from "../../charts/phases";
import type { Loaded } from "../../state/series";

interface Props {
  charts: ChartSpec[];
  loaded: Loaded;
  range: Zoom | null;
  smoothing: Smoothing;
  onZoom: (zoom: Zoom | null) => void;
}

const NO_POINTS: Points = { x: [], y: [] };

function curvesOf(chart: ChartSpec, loaded: Loaded): CardCurve[] {
  if (chart.kind === "phases") {
    return stepTime(loaded.series).map(({ label, slot, points }) => ({ label, colour: seriesColour(slot), points }));
  }
  return chart.curves.map(({ name, label }, at) => ({ label, colour: seriesColour(at), points: pointsOf(name, chart, loaded) }));
}

function pointsOf(name: string, { kind }: ChartSpec, loaded: Loaded): Points {
  if (kind === "evals") {
    const evals = loaded.evals.toSorted((a, b) => a.version - b.version);
    return { x: evals.map((one) => one.version), y: evals.map((one) => one.accuracy) };
  }
  return loaded.series[name] ?? NO_POINTS;
}

const DRAWN = { lines: "lines", phases: "stack", evals: "dots" } as const;

export function Charts({ charts, loaded, range, smoothing, onZoom }: Props) {
  const curves = useMemo(
    () => charts.map((chart) => curvesOf(chart, loaded)),
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
          kind={DRAWN[chart.kind ?? "lines"]}
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
