import { useEffect, useState } from "preact/hooks";

import type { Row, Status } from "../../api/types";
import { clock, count, duration, num, percent, plural } from "../../format";
import { Meter, Pill } from "../../parts/basics";
import { onSteps } from "../../state/live";
import { Actions } from "./actions";
import { keep, secondsPerStep } from "./rate";

const SIDES: Record<string, string> = { trainer: "Trainer", rollout: "Rollout", reward: "Reward" };

export function stateOf(view: Status): string {
  if (view.state === "running" && view.operator) {
    return view.operator.stopping ? "stopping" : view.operator.paused ? "paused" : view.state;
  }
  return view.state;
}

const meanOf = (values: number[]) =>
  values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

function useRate(): number | null {
  const [rows, setRows] = useState<Row[]>([]);
  useEffect(() => onSteps((more) => setRows((old) => keep(old, more))), []);
  return secondsPerStep(rows);
}

/** An estimate needs no seconds in it when it is of minutes. */
const rounded = (seconds: number) => (seconds < 120 ? seconds : 60 * Math.round(seconds / 60));

interface Numbers {
  reward: number | null;
  accuracy: number | null;
  accuracyAt: number | null;
}

/** The run in one look: state, step, what matters of the numbers, and which side is the bottleneck. */
export function Headline({ view, numbers }: { view: Status; numbers: Numbers }) {
  const perStep = useRate();
  const left = view.max_steps - view.step;
  const isRunning = view.state === "running";
  const eta = isRunning && perStep !== null && left > 0 ? `about ${duration(rounded(perStep * left))} left` : "";
  const began = view.run.began ? `began ${clock(view.run.began)}` : "";
  return (
    <section class="card headline" aria-label="Headline">
      <div class="headline-top">
        <Pill state={stateOf(view)} />
        <h2>
          Step {count(view.step)} <span class="muted">of {count(view.max_steps)}</span>
        </h2>
        <span class="muted small">{[eta, began].filter(Boolean).join(", ")}</span>
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
  const { trainer, replicas } = view;
  const rollouts = meanOf(replicas.map((replica) => replica.waiting_share));
  const speed = replicas.reduce((sum, replica) => sum + replica.tokens_per_second, 0);
  const isRunning = view.state === "running";
  const waits = (what: string) => (!isRunning ? "not running" : what ? `now for ${what}` : "not now");
  return (
    <dl class="tiles">
      <Tile name="Reward" value={num(numbers.reward)} note="mean of the last batch" />
      <Tile
        name="Held-out accuracy"
        value={percent(numbers.accuracy, 1)}
        note={numbers.accuracyAt === null ? "not evaluated yet" : `version ${numbers.accuracyAt}`}
      />
      <Tile
        name="Tokens a second"
        value={replicas.length > 0 ? num(speed) : num(null)}
        note={plural(replicas.length, "rollout replica")}
      />
      <Tile
        name="Trainer waits"
        value={percent(isRunning ? trainer.waiting_share : null)}
        note={waits(trainer.waiting_for)}
        share={isRunning ? trainer.waiting_share : null}
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
    </dl>
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
