import { useMemo } from "preact/hooks";

import type { Points } from "../../api/types";
import type { Axis } from "../../charts/axis";
import { ChartCard, type CardCurve } from "../../charts/card";
import { type ChartSpec, hintOf } from "../../charts/catalog";
import { evalPoints } from "../../charts/evals";
import { NO_POINTS } from "../../charts/points";
import { formatOf, unitOf } from "../../charts/metrics";
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
  axis: Axis;
  isLog: boolean;
  onZoom: (zoom: Zoom | null) => void;
  onPick: (step: number) => void;
}

function curvesOf(chart: ChartSpec, loaded: Loaded): CardCurve[] {
  if (chart.kind === "phases") {
    return stepTime(loaded.series).map(({ label, slot, points }) => ({ label, colour: seriesColour(slot), points }));
  }
  const curves = chart.curves.filter(({ name }) => chart.kind === "evals" || loaded.series[name]);
  return curves.map(({ name, label }, at) => ({ label, colour: seriesColour(at), points: pointsOf(name, chart, loaded) }));
}

function pointsOf(name: string, { kind }: ChartSpec, loaded: Loaded): Points {
  if (kind === "evals") {
    return evalPoints(loaded.evals, name);
  }
  return loaded.series[name] ?? NO_POINTS;
}

const DRAWN = { lines: "lines", phases: "stack", evals: "dots" } as const;

export function Charts({ charts, loaded, onZoom, ...look }: Props) {
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
          hint={hintOf(chart)}
          unit={unitOf(chart.curves[0]?.name ?? "")}
          curves={curves[at] ?? []}
          kind={DRAWN[chart.kind ?? "lines"]}
          sync="run"
          format={formatOf(chart.curves.at(-1)?.name ?? "")}
          onZoom={onZoom}
          {...look}
        />
      ))}
    </section>
  );
}
