import { useMemo, useState } from "preact/hooks";

import type { ComparedRun } from "../../api/types";
import { ChartCard, type CardCurve } from "../../charts/card";
import { titleOf } from "../../charts/catalog";
import { evalPoints, evalTitle, measuresOf, REWARD_HINT, setOf } from "../../charts/evals";
import { described, formatOf, unitOf } from "../../charts/metrics";
import type { Zoom } from "../../charts/options";
import type { Smoothing } from "../../charts/smoothing";
import { seriesColour } from "../../charts/paint";
import { NO_POINTS } from "../../charts/points";
import { Segmented } from "../../parts/basics";
import { SMOOTHING } from "../run/toolbar";

interface Compared {
  id: string;
  name: string;
  title: string;
  isEval: boolean;
}

/** The charts: the evaluations of all sets, then the metrics picked. */
function chartsOf(runs: ComparedRun[], names: string[]): Compared[] {
  const measures = new Set(runs.flatMap((run) => measuresOf(run.evals)));
  const evals = [...(measures.size > 0 ? measures : ["accuracy"])].map((name) => ({
    id: `eval-${name}`,
    name,
    title: [evalTitle(name), setOf(name)].filter(Boolean).join(": "),
    isEval: true,
  }));
  return [...evals, ...names.map((name) => ({ id: name, name, title: titleOf(name), isEval: false }))];
}

/** The same numbers of several runs in one chart each; a run has the same colour in all. */
export function Curves({ runs, names, onPick }: { runs: ComparedRun[]; names: string[]; onPick: () => void }) {
  const [range, setRange] = useState<Zoom | null>(null);
  const [smoothing, setSmoothing] = useState<Smoothing>("some");
  const charts = useMemo(
    () =>
      chartsOf(runs, names).map((chart) => ({
        ...chart,
        curves: runs.map((run, at): CardCurve => {
          const points = chart.isEval ? evalPoints(run.evals, chart.name) : (run.series[chart.name] ?? NO_POINTS);
          return { label: run.name, colour: seriesColour(at), points };
        }),
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
        {charts.map(({ id, name, title, isEval, curves }) => (
          <ChartCard
            key={id}
            title={title}
            curves={curves}
            kind={isEval ? "dots" : "lines"}
            sync="compare"
            range={range}
            smoothing={smoothing}
            height={200}
            hint={isEval && !name.endsWith("accuracy") ? `${REWARD_HINT}.` : described(name).text}
            unit={unitOf(name)}
            format={formatOf(name)}
            onZoom={setRange}
          />
        ))}
      </section>
    </>
  );
}
