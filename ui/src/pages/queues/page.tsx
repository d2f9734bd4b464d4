import type { Queues } from "../../api/types";
import { count, duration } from "../../format";
import { Empty, Loading, Problem } from "../../parts/basics";
import { useResource } from "../../parts/resource";
import { TableCard } from "../../parts/table";
import { hasEnded } from "../../state/live";
import { DeadLetters } from "./dead";

const EVERY_MS = 2_000;
const OLD_S = 60;

const ABOUT: Record<string, string> = {
  episodes: "issued, for the environment workers",
  prompts: "issued, for the rollout replicas",
  rollouts: "generated, for reward",
  scored: "scored, for the trainer",
  evaluated: "held-out answers, for the orchestrator",
  dead: "given up, kept for people",
};

export function QueuesPage() {
  const found = useResource<Queues>("/api/queues", EVERY_MS);
  if (found.data === null) {
    return found.problem ? <Problem words={found.problem} again={found.reload} /> : <Loading what="the queues" />;
  }
  return (
    <>
      {found.problem && <Problem words={found.problem} again={found.reload} />}
      <Streams queues={found.data} />
      <DeadLetters total={found.data.dead} />
    </>
  );
}

function Streams({ queues }: { queues: Queues }) {
  const most = Math.max(1, ...queues.streams.map((stream) => stream.length));
  return (
    <TableCard
      name="cards streams"
      title="Streams"
      head={
        <ul class="legend">
          <li>
            <span class="swatch series-2" aria-hidden="true" /> taken, not finished
          </li>
          <li>
            <span class="swatch series-1" aria-hidden="true" /> not taken yet
          </li>
        </ul>
      }
      columns={["Stream", "Entries", "Taken", "Oldest taken"]}
      numbers={["Taken", "Oldest taken"]}
      empty={queues.streams.length === 0 && <Empty title="No streams">{hasEnded.value ? "The run has ended." : "The broker has not answered yet."}</Empty>}
    >
      {queues.streams.map((stream) => {
        const oldest = stream.oldest_pending_seconds;
        return (
          <tr key={stream.name}>
            <th scope="row">
              {stream.name}
              <span class="muted small address">{ABOUT[stream.name]}</span>
            </th>
            <td data-label="Entries">
              <div class="with-bar">
                <Bar length={stream.length} pending={stream.pending} most={most} />
                <span class="number">{count(stream.length)}</span>
              </div>
            </td>
            <td data-label="Taken" class="number">{count(stream.pending)}</td>
            <td data-label="Oldest taken" class={`number ${oldest !== null && oldest > OLD_S ? "warn-ink" : ""}`}>
              {stream.pending > 0 ? duration(oldest) : duration(null)}
            </td>
          </tr>
        );
      })}
    </TableCard>
  );
}

/** A stream's entries, and which part of them is taken and not acked. */
function Bar({ length, pending, most }: { length: number; pending: number; most: number }) {
  return (
    <svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="bar-length" width={(100 * length) / most} height="8" />
      <rect class="bar-pending" width={(100 * Math.min(pending, length)) / most} height="8" />
    </svg>
  );
}
