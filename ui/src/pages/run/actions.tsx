import type { Status } from "../../api/types";
import { ask } from "../../parts/ask";

const pause = () =>
  ask({
    title: "Pause the run?",
    words: "No more prompts are issued. What is under way is finished and trained; then all sides wait.",
    verb: "Pause",
    path: "/api/actions/pause",
  });

const resume = () =>
  ask({
    title: "Resume the run?",
    words: "Prompts are issued again from where the run was paused.",
    verb: "Resume",
    path: "/api/actions/resume",
  });

const checkpoint = () =>
  ask({
    title: "Write a checkpoint now?",
    words: "The trainer writes one after the step it is in, whatever its schedule says.",
    verb: "Write checkpoint",
    path: "/api/actions/checkpoint",
  });

const stop = () =>
  ask({
    title: "Stop the run?",
    words: "The trainer finishes its step, writes a checkpoint and ends. The run can be resumed later.",
    verb: "Stop the run",
    path: "/api/actions/stop",
    isGrave: true,
  });

export const scale = (service: "rollout" | "reward", value: number) =>
  ask({
    title: `Scale ${service}`,
    words: `How many replicas of ${service} shall there be? Those taken away hand their work back first.`,
    verb: "Scale",
    path: "/api/actions/scale",
    body: { service },
    number: { name: "count", label: "Replicas", value, least: 0, most: 1000 },
  });

/** What an operator can do to the run as a whole; nothing where it has ended. */
export function Actions({ view }: { view: Status }) {
  if (view.operator === null || view.state !== "running") {
    return null;
  }
  const { paused, stopping, checkpoint_asked: isAsked } = view.operator;
  return (
    <div class="actions" role="group" aria-label="Actions">
      {paused ? (
        <button type="button" class="primary" onClick={resume} disabled={stopping}>
          Resume
        </button>
      ) : (
        <button type="button" onClick={pause} disabled={stopping}>
          Pause
        </button>
      )}
      <button type="button" onClick={checkpoint} disabled={stopping || isAsked}>
        {isAsked ? "Checkpoint asked" : "Checkpoint now"}
      </button>
      <button type="button" class="grave-quiet" onClick={stop} disabled={stopping}>
        {stopping ? "Stopping" : "Stop"}
      </button>
    </div>
  );
}
