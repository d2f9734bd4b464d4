import { useMemo, useState } from "preact/hooks";

import type { ComparedRun, Points } from "../../api/types";
import { ChartCard, type CardCurve } from "../../charts/card";
import { titleOf } from "../../charts/catalog";
import { described, formatOf, unitOf } from "../../charts/metrics";
import type { Zoom } from "../../charts/options";
import type { Smoothing } from "../../charts/smoothing";
import { seriesColour } from "../../charts/paint";
import { Segmented } from "../../parts/basics";
import { SMOOTHING } from "../run/toolbar";

const ACCURACY = "accuracy";
const NO_POINTS: Points = { x: [], y: [] };

function pointsOf(run: ComparedRun, name: string): Points {
  if (name === ACCURACY) {
    const evals = run.evals.toSorted((a, b) => a.version - b.version);
    return { x: evals.map((one) => one.version), y: evals.map((one) => one.accuracy) };
  }
  return run.series[name] ?? NO_POINTS;
}

/** The same numbers of several runs in one chart each; a run has the same colour in all. */
export function Curves({ runs, names, onPick }: { runs: ComparedRun[]; names: string[]; onPick: () => void }) {
  const [range, setRange] = useState<Zoom | null>(null);
  const [smoothing, setSmoothing] = useState<Smoothing>("some");
  const charts = useMemo(
    () =>
      [ACCURACY, ...names].map((name) => ({
        name,
        curves: runs.map(
          (run, at): CardCurve => ({ label: run.name, colour: seriesColour(at), points: pointsOf(run, name) }),
        ),
      })),
    [runs, names.join(",")],
  );
  return (
    <>
      <div class="toolbar">
        <span class="toolbar-label">Smoothing</span>
        <Segmented label="Smoothing" value={smoothing} choices={SMOOTHING} onChoose={setSmoothing} />
        <button type="button" onClick={onPick}>
          Metrics
        </button>
        <button type="button" onClick={() => setRange(null)} disabled={range === null}>
          All steps
        </button>
      </div>
      <section class="charts wide" aria-label="Curves">
        {charts.map(({ name, curves }) => (
          <ChartCard
            key={name}
            title={titleOf(name)}
            curves={curves}
            kind={name === ACCURACY ? "dots" : "lines"}
            sync="compare"
            range={range}
            smoothing={smoothing}
            height={200}
            hint={described(name).text}
            unit={unitOf(name)}
            format={formatOf(name)}
            onZoom={setRange}
          />
        ))}
      </section>
    </>
  );
}
