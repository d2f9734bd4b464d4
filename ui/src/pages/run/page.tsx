import { useEffect, useMemo, useState } from "preact/hooks";

import { axisOf, CURVES } from "../../charts/axis";
import { CHARTS, extraChart, namesOf, withComponents, withEvals } from "../../charts/catalog";
import { evalPoints, measuresOf } from "../../charts/evals";
import type { Zoom } from "../../charts/options";
import { latest, NO_POINTS } from "../../charts/points";
import { Loading, Problem } from "../../parts/basics";
import { connection, generation, status } from "../../state/live";
import { route, setParams } from "../../state/route";
import { useSeries, type Window } from "../../state/series";
import { Charts } from "./charts";
import { Headline } from "./headline";
import { EventLog } from "./log";
import { Picker } from "./picker";
import { Toolbar } from "./toolbar";
import { rangeOf, viewOf, type View } from "./view";
import { Why } from "./why";

const zoomTo = (zoom: Zoom | null) =>
  setParams({ from: zoom ? String(zoom.from) : "", to: zoom ? String(zoom.to) : "", newest: "", step: "" });

function windowOf({ zoom, newest }: View): Window {
  if (zoom) {
    return { from: zoom.from, ...(zoom.to === undefined ? {} : { to: zoom.to }) };
  }
  return newest ? { newest: Number(newest) } : {};
}

export function RunPage() {
  if (status.value === null) {
    return connection.value === "connecting" ? <Loading what="the run" /> : <Problem words="The orchestrator does not answer. The page goes on trying." />;
  }
  return <LoadedPage />;
}

function LoadedPage() {
  const [isPicking, setPicking] = useState(false);
  const view = viewOf(route.value.params);
  const picked = view.extras.join(",");
  const [names, setNames] = useState<string[]>([]);
  const wanted = useMemo(() => withComponents([...CHARTS, ...view.extras.map(extraChart)], names), [picked, names]);
  const loaded = useSeries([...namesOf(wanted), ...CURVES[view.x]], windowOf(view));
  useEffect(() => setNames(loaded.names), [loaded.names.join(",")]);
  const charts = useMemo(
    () => {
      const known = wanted.filter(({ kind, curves }) => kind === "evals" || curves.some(({ name }) => loaded.names.includes(name)));
      return withEvals(known, loaded.evals);
    },
    [wanted, loaded.names, loaded.evals],
  );
  const began = status.value?.run.began ?? 0;
  const axis = useMemo(() => axisOf(view.x, loaded.series, began), [view.x, loaded.series, began]);
  if (status.value === null) {
    return null;
  }
  const [measure = "accuracy"] = measuresOf(loaded.evals);
  const evaluated = evalPoints(loaded.evals, measure);
  return (
    <>
      <Headline
        view={status.value}
        numbers={{
          reward: status.value.trainer.metrics.reward_mean ?? latest(loaded.series.reward_mean ?? NO_POINTS),
          heldOut: evaluated.y.at(-1) ?? null,
          heldOutAt: evaluated.x.at(-1) ?? null,
          measure,
        }}
      />
      <Toolbar view={view} last={loaded.last} isLoading={loaded.isLoading} onPick={() => setPicking(true)} />
      {loaded.problem && <Problem words={loaded.problem} again={() => (generation.value += 1)} />}
      <Charts
        charts={charts}
        loaded={loaded}
        range={rangeOf(view, loaded.last)}
        smoothing={view.smoothing}
        axis={axis}
        isLog={view.isLog}
        onZoom={zoomTo}
        onPick={(step) => setParams({ step: String(step) })}
      />
      <EventLog />
      {view.step !== undefined && <Why step={view.step} />}
      {isPicking && (
        <Picker
          names={loaded.names}
          picked={view.extras}
          onPick={(names) => setParams({ metrics: names.join(",") })}
          onClose={() => setPicking(false)}
        />
      )}
    </>
  );
}
