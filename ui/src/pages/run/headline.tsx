import type { Status } from "../../api/types";
import { evalTitle, setOf } from "../../charts/evals";
import { formatOf } from "../../charts/metrics";
import { clock, count, duration, num, percent, plural } from "../../format";
import { Meter, Pill } from "../../parts/basics";
import { Actions } from "./actions";

const SIDES: Record<string, string> = { trainer: "Trainer", rollout: "Rollout", reward: "Reward" };

export function stateOf(view: Status): string {
  if (view.state === "running" && view.operator) {
    return view.operator.stopping ? "stopping" : view.operator.paused ? "paused" : view.state;
  }
  return view.state;
}

const meanOf = (values: number[]) =>
  values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

/** An estimate needs no seconds in it when it is of minutes. */
const rounded = (seconds: number) => (seconds < 120 ? seconds : 60 * Math.round(seconds / 60));

interface Numbers {
  reward: number | null;
  heldOut: number | null;
  heldOutAt: number | null;
  /** Which number of the evaluations it is. */
  measure: string;
}

/** The run in one look: state, step, what matters of the numbers, and which side is the bottleneck. */
export function Headline({ view, numbers }: { view: Status; numbers: Numbers }) {
  const perStep = view.step_seconds ?? null;
  const left = view.max_steps - view.step;
  const isRunning = view.state === "running";
  const eta = isRunning && perStep !== null && left > 0 ? `about ${duration(rounded(perStep * left))} left` : "";
  const { began, ended } = view.run;
  const times = [began && `began ${clock(began)}`, began && ended && `ran ${duration(ended - began)}`];
  return (
    <section class="card headline" aria-label="Headline">
      <div class="headline-top">
        <Pill state={stateOf(view)} />
        <h2>
          Step {count(view.step)} <span class="muted">of {count(view.max_steps)}</span>
        </h2>
        <span class="muted small">{[eta, ...times].filter(Boolean).join(", ")}</span>
        <Actions view={view} />
      </div>
      <progress max={Math.max(1, view.max_steps)} value={view.step} aria-label="Steps done" />
      <Tiles view={view} numbers={numbers} />
      {view.reason && <p class="reason">{view.reason}</p>}
      <p class="bottleneck">
        {view.bottleneck.side !== "none" && <span class="side">{SIDES[view.bottleneck.side] ?? view.bottleneck.side}</span>}
        <span>{view.bottleneck.text}</span>
      </p>
    </section>
  );
}

function Tiles({ view, numbers }: { view: Status; numbers: Numbers }) {
  return (
    <dl class="tiles">
      <Tile name="Reward" value={num(numbers.reward)} note="mean of the last batch" />
      <Tile
        name={evalTitle(numbers.measure)}
        value={formatOf(numbers.measure)(numbers.heldOut)}
        note={numbers.heldOutAt === null ? "not evaluated yet" : [setOf(numbers.measure), `version ${numbers.heldOutAt}`].filter(Boolean).join(", ")}
      />
      {view.run.ended ? <Averages view={view} averages={view.averages ?? {}} /> : <Now view={view} />}
    </dl>
  );
}

/** Of a run that has ended: what it was like on the whole. */
function Averages({ view, averages }: { view: Status; averages: Record<string, number> }) {
  const note = `mean of ${plural(view.step, "step")}`;
  const waited = averages.wait_batch_share ?? null;
  return (
    <>
      <Tile name="Tokens a second" value={num(averages.generated_tokens_per_second)} note={note} />
      <Tile name="Step" value={duration(averages.interval_seconds ?? averages.seconds)} note={note} />
      <Tile name="Trainer waited" value={percent(waited)} note={note} share={waited} />
      <Tile name="Groups trained" value={count(view.groups.trained)} note={`of ${count(view.groups.issued)} issued`} />
    </>
  );
}

function Now({ view }: { view: Status }) {
  const { trainer, replicas } = view;
  const rollouts = meanOf(replicas.map((replica) => replica.waiting_share));
  const speed = replicas.reduce((sum, replica) => sum + replica.tokens_per_second, 0);
  const waits = (what: string) => (what ? `now for ${what}` : "not now");
  return (
    <>
      <Tile
        name="Tokens a second"
        value={replicas.length > 0 ? num(speed) : num(null)}
        note={plural(replicas.length, "rollout replica")}
      />
      <Tile
        name="Trainer waits"
        value={percent(trainer.waiting_share)}
        note={waits(trainer.waiting_for)}
        share={trainer.waiting_share}
      />
      <Tile
        name="Rollouts wait"
        value={percent(rollouts)}
        note={waits(replicas.find((replica) => replica.waiting_for)?.waiting_for ?? "")}
        share={rollouts}
      />
      <Tile
        name="Groups open"
        value={`${count(view.credit.issued)}${view.credit.limit > 0 ? ` / ${count(view.credit.limit)}` : ""}`}
        note={`${count(view.groups.trained)} trained`}
        share={view.credit.limit > 0 ? view.credit.issued / view.credit.limit : null}
      />
    </>
  );
}

function Tile(props: { name: string; value: string; note: string; share?: number | null }) {
  return (
    <div class="tile">
      <dt>{props.name}</dt>
      <dd class="tile-value">{props.value}</dd>
      <dd class="tile-note" title={props.note}>
        {props.share !== undefined && props.share !== null ? <Meter share={props.share} /> : null}
        <span>{props.note}</span>
      </dd>
    </div>
  );
}
