import { useState } from "preact/hooks";

import { address } from "../../api/client";
import type { DeadLetter, DeadPage } from "../../api/types";
import { bytes, clock, count } from "../../format";
import { ask } from "../../parts/ask";
import { Empty, Loading, Problem } from "../../parts/basics";
import { type Resource, useResource } from "../../parts/resource";
import { TableCard } from "../../parts/table";

const LEAF = 50;
const EVERY_MS = 5_000;

const requeue = (letter: DeadLetter, onDone: () => void) =>
  ask({
    title: `Re-queue ${letter.group_id}?`,
    words: "Its prompt is issued again under a new group index. The dead letter stays here for reference.",
    verb: "Re-queue",
    path: `/api/dead/${encodeURIComponent(letter.id)}/requeue`,
    onDone,
  });

export function DeadLetters({ total }: { total: number }) {
  const [offset, setOffset] = useState(0);
  const found = useResource<DeadPage>(address("/api/dead", { offset, limit: LEAF }), EVERY_MS);
  const rows = found.data?.rows ?? [];
  return (
    <TableCard
      name="dead"
      title="Dead letters"
      head={
        <>
          <span class="muted">{count(found.data?.total ?? total)}</span>
          {found.data && found.data.total > LEAF && <Pager offset={offset} total={found.data.total} onMove={setOffset} />}
        </>
      }
      columns={["Time", "Group", "Reason", "Prompt", "Size", "Action"]}
      numbers={["Size"]}
      isTall
      empty={rows.length === 0 && <Nothing found={found} />}
    >
      {rows.map((letter) => (
        <tr key={letter.id}>
          <td class="nowrap tabular">{clock(letter.t)}</td>
          <th scope="row" class="nowrap">
            {letter.group_id || "unknown"}
            <span class="muted small address">
              {[letter.purpose, `attempt ${letter.attempt}`].filter(Boolean).join(", ")}
            </span>
          </th>
          <td class="wrap">
            <strong>{letter.reason}</strong>
            {letter.error && <span class="muted small address">{letter.error}</span>}
          </td>
          <td class="wrap excerpt">{letter.prompt}</td>
          <td class="number nowrap">{bytes(letter.bytes)}</td>
          <td>
            {letter.requeued || letter.group_index === null ? (
              <span class="muted">{letter.requeued ? "re-queued" : "none"}</span>
            ) : (
              <button type="button" class="small" onClick={() => requeue(letter, found.reload)}>
                Re-queue
              </button>
            )}
          </td>
        </tr>
      ))}
    </TableCard>
  );
}

function Pager({ offset, total, onMove }: { offset: number; total: number; onMove: (offset: number) => void }) {
  return (
    <div class="actions" role="group" aria-label="Pages of dead letters">
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - LEAF))}>
        Newer
      </button>
      <span class="muted small">
        {count(offset + 1)} to {count(Math.min(total, offset + LEAF))}
      </span>
      <button type="button" disabled={offset + LEAF >= total} onClick={() => onMove(offset + LEAF)}>
        Older
      </button>
    </div>
  );
}

function Nothing({ found }: { found: Resource<DeadPage> }) {
  if (found.data !== null) {
    return <Empty title="No dead letters">Groups that were given up would wait here for somebody to look at them.</Empty>;
  }
  return found.problem ? <Problem words={found.problem} again={found.reload} /> : <Loading what="dead letters" />;
}
