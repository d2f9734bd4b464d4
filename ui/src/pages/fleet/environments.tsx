import type { EnvironmentWorker, EpisodeWait, Status } from "../../api/types";
import { count, duration } from "../../format";
import { TableCard } from "../../parts/table";

const SHOWN = 5;

/** Environment workers, and which episode waits for what; nothing in a run without environments. */
export function Environments({ view }: { view: Status }) {
  const workers = view.environments ?? [];
  if (workers.length === 0) {
    return null;
  }
  return (
    <TableCard
      name="cards environments"
      title="Environment workers"
      head={<span class="muted">{workers.length}</span>}
      columns={["Worker", "In play", "Slots", "Waiting", "Episodes that wait longest"]}
      numbers={["In play", "Slots", "Waiting"]}
    >
      {workers.map((worker) => (
        <Line key={worker.id} worker={worker} now={view.now} />
      ))}
    </TableCard>
  );
}

function Line({ worker, now }: { worker: EnvironmentWorker; now: number }) {
  const more = worker.playing + worker.waiting - Math.min(SHOWN, worker.waits.length);
  return (
    <tr>
      <th scope="row">
        {worker.id}
        {worker.notes.map((note) => (
          <span key={note} class="warn-ink small address">
            {note}
          </span>
        ))}
      </th>
      <td data-label="In play" class="number">{count(worker.playing)}</td>
      <td data-label="Slots" class="number">{count(worker.slots)}</td>
      <td data-label="Waiting" class="number">{count(worker.waiting)}</td>
      <td class="wrap">
        {worker.waits.length === 0 && <span class="muted">none: it waits for tasks</span>}
        <ul>
          {worker.waits.slice(0, SHOWN).map((wait) => (
            <li key={wait.id}>
              {wait.id} <span class="muted">waits for {wordsOf(wait)}, {duration(Math.max(0, now - wait.since))}</span>
            </li>
          ))}
          {more > 0 && <li class="muted">and {count(more)} more</li>}
        </ul>
      </td>
    </tr>
  );
}

const wordsOf = (wait: EpisodeWait) => (wait.kind === "engine" ? `${wait.waits_for} from the engine` : wait.waits_for);
