import type { Status } from "../../api/types";
import { count, duration, num, percent, versionWords } from "../../format";
import { Pill } from "../../parts/basics";
import { hasEnded } from "../../state/live";

export function TrainerCard({ view }: { view: Status }) {
  const { trainer } = view;
  const facts: [string, string][] = [
    ["Version", versionWords(`${view.incarnation}.${view.version}`)],
    hasEnded.value
      ? ["Waited", `${percent(view.averages?.wait_batch_share)} on average`]
      : ["Waits", trainer.waiting_for ? `now for ${trainer.waiting_for}` : "not now"],
    ["Last step", duration(trainer.metrics.seconds)],
    ["Tokens a step", count(trainer.metrics.completion_tokens)],
    ["Trained tokens a second", num(trainer.metrics.trained_tokens_per_second)],
    ...(trainer.metrics.mfu === undefined ? [] : [["MFU", percent(trainer.metrics.mfu, 1)] satisfies [string, string]]),
  ];
  return (
    <section class="card strip" aria-labelledby="trainer-title">
      <h2 id="trainer-title">Trainer</h2>
      <Pill state={trainer.state} />
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
