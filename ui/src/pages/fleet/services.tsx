import type { Status } from "../../api/types";
import { count, num, percent, plural, versionWords } from "../../format";
import { Pill } from "../../parts/basics";
import { TableCard } from "../../parts/table";
import { scale } from "../run/actions";

interface Row {
  name: string;
  state: string;
  doing: string;
  waits: string;
  scales?: () => void;
}

const waitsFor = (what: string | undefined) => (what ? `waits for ${what}` : "");
const waited = (share: number, what: string) => [percent(share), what && `now for ${what}`].filter(Boolean).join(", ");

/** One row for each process of the run that the status knows of, and one each for reward and broker. */
export function rowsOf(view: Status): Row[] {
  const { trainer, streams, credit, replicas, environments = [] } = view;
  const { rollouts } = streams;
  const entries = Object.values(streams).reduce((sum, one) => sum + one.length, 0);
  return [
    {
      name: "orchestrator",
      state: view.state,
      doing: `${count(credit.issued)}${credit.limit > 0 ? ` of ${count(credit.limit)}` : ""} groups open`,
      waits: waitsFor(view.waiting_for) || (view.evaluating && `evaluation waits for ${view.evaluating}`),
    },
    {
      name: "trainer",
      state: trainer.state,
      doing: `step ${count(view.step)} done, version ${count(view.version)}`,
      waits: waited(trainer.waiting_share, trainer.waiting_for),
    },
    ...replicas.map((one, at) => ({
      name: one.id,
      state: one.state,
      doing: `version ${versionWords(one.version)}, ${plural(one.in_flight_rollouts, "rollout")} in flight, ${num(one.tokens_per_second)} tokens/s`,
      waits: waited(one.waiting_share, one.waiting_for),
      ...(at === 0 ? { scales: () => scale("rollout", Math.max(1, replicas.length)) } : {}),
    })),
    ...environments.map((one) => ({
      name: one.id,
      state: one.playing > 0 ? "playing" : "waiting",
      doing: `${count(one.playing)} of ${plural(one.slots, "episode")} in play`,
      waits: one.waiting > 0 ? `${count(one.waiting)} wait for a slot or weights` : "",
    })),
    {
      name: "reward",
      state: rollouts?.pending ? "scoring" : "waiting",
      doing: rollouts ? `${plural(rollouts.pending, "group")} at work` : "",
      waits: rollouts ? `${plural(rollouts.undelivered, "group")} to score` : "",
      scales: () => scale("reward", 1),
    },
    { name: "broker", state: entries > 0 || rollouts ? "serving" : "unknown", doing: `${count(entries)} entries in ${plural(Object.keys(streams).length, "stream")}`, waits: "" },
  ];
}

export function Services({ view }: { view: Status }) {
  const canAct = view.operator !== null && view.state === "running";
  return (
    <TableCard
      name="cards services"
      title="Services"
      columns={["Service", "State", "Does", "Waits", canAct && "Action"]}
    >
      {rowsOf(view).map(({ name, state, doing, waits, scales }) => (
        <tr key={name}>
          <th scope="row">{name}</th>
          <td data-label="State">
            <Pill state={state} />
          </td>
          <td data-label="Does">{doing}</td>
          <td data-label="Waits">{waits || num(null)}</td>
          {canAct && (
            <td>
              {scales && (
                <button type="button" class="small" onClick={scales}>
                  {name === "reward" ? "Scale reward" : "Scale rollout"}
                </button>
              )}
            </td>
          )}
        </tr>
      ))}
    </TableCard>
  );
}
