import { useState } from "preact/hooks";

import { address } from "../../api/client";
import type { Comparison, RunEntry } from "../../api/types";
import { Empty, Loading, Problem } from "../../parts/basics";
import { useResource } from "../../parts/resource";
import { route, setParams } from "../../state/route";
import { Picker } from "../run/picker";
import { ConfigTable } from "./config";
import { Curves } from "./curves";
import { RunTable } from "./runs";

const EVERY_MS = 10_000;
const POINTS = 600;
export const MOST = 8;
const MOST_NAMES = 64; // The service gives no more at once.
const FIRST = ["reward_mean", "entropy", "completion_length_mean"];

/** The runs picked: those of the address, else the present one. */
function pickedOf(runs: RunEntry[], param: string | undefined): string[] {
  const names = param?.split(",").filter((name) => runs.some((run) => run.name === name));
  return names ?? runs.filter((run) => run.current).map((run) => run.name);
}

export function ComparePage() {
  const { params } = route.value;
  const runs = useResource<RunEntry[]>("/api/runs", EVERY_MS);
  if (runs.data === null) {
    return runs.problem ? <Problem words={runs.problem} again={runs.reload} /> : <Loading what="the runs" />;
  }
  const picked = pickedOf(runs.data, params.runs).slice(0, MOST);
  const names = params.metrics?.split(",").filter(Boolean).slice(0, MOST_NAMES) ?? FIRST;
  return (
    <>
      <RunTable runs={runs.data} picked={picked} onPick={(chosen) => setParams({ runs: chosen.join(",") || "none" })} />
      {picked.length === 0 ? (
        <Empty title="No run picked">Pick runs above to lay their curves over each other.</Empty>
      ) : (
        <Compared picked={picked} names={names} />
      )}
    </>
  );
}

function Compared({ picked, names }: { picked: string[]; names: string[] }) {
  const [isPicking, setPicking] = useState(false);
  const path = address("/api/compare", { runs: picked.join(","), names: names.join(","), points: POINTS });
  const found = useResource<Comparison>(path, EVERY_MS);
  const all = useResource<{ names: string[] }>(address("/api/series", { names: "reward_mean", points: 4 }));
  if (found.data === null) {
    return found.problem ? <Problem words={found.problem} again={found.reload} /> : <Loading what="the curves" />;
  }
  return (
    <>
      <Curves runs={found.data.runs} names={names} onPick={() => setPicking(true)} />
      <ConfigTable runs={found.data.runs.map((run) => run.name)} keys={found.data.config} />
      {isPicking && (
        <Picker
          names={all.data?.names ?? names}
          picked={names}
          onPick={(chosen) => setParams({ metrics: chosen.join(",") || FIRST[0] || "" })}
          onClose={() => setPicking(false)}
        />
      )}
    </>
  );
}
