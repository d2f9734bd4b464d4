import { useState } from "preact/hooks";

import { address } from "../../api/client";
import type { DeadLetter, DeadPage } from "../../api/types";
import { bytes, clock, count } from "../../format";
import { ask } from "../../parts/ask";
import { Empty, Loading, Problem } from "../../parts/basics";
import { useResource } from "../../parts/resource";

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
  return (
    <section class="card" aria-labelledby="dead-title">
      <header class="card-head">
        <h2 id="dead-title">Dead letters</h2>
        <span class="muted">{count(found.data?.total ?? total)}</span>
        {found.data && found.data.total > LEAF && (
          <Pager offset={offset} total={found.data.total} onMove={setOffset} />
        )}
      </header>
      {found.data === null && found.problem && <Problem words={found.problem} again={found.reload} />}
      {found.data === null && !found.problem && <Loading what="dead letters" />}
      {found.data?.rows.length === 0 && (
        <Empty title="No dead letters">Groups that were given up would wait here for somebody to look at them.</Empty>
      )}
      {found.data !== null && found.data.rows.length > 0 && <Letters rows={found.data.rows} onDone={found.reload} />}
    </section>
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

function Letters({ rows, onDone }: { rows: DeadLetter[]; onDone: () => void }) {
  return (
    <div class="scroll tall" tabindex={0} role="region" aria-labelledby="dead-title">
      <table class="plain-table dead">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Group</th>
            <th scope="col">Reason</th>
            <th scope="col">Prompt</th>
            <th scope="col" class="number">Size</th>
            <th scope="col">Action</th>
          </tr>
        </thead>
        <tbody>
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
                  <button type="button" class="small" onClick={() => requeue(letter, onDone)}>
                    Re-queue
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
