import { useState } from "preact/hooks";

import type { Publication } from "../../api/types";
import { clock, duration, plural } from "../../format";
import { Empty, Pill } from "../../parts/basics";
import { TableCard } from "../../parts/table";
import { PhaseBar, PhaseLegend, phasesOf } from "./phases";
import { notesOf, wayOf } from "./weights";

/** The last publications of weights: how long each phase took, newest first. */
export function Publications({ publications }: { publications: Publication[] }) {
  const [open, setOpen] = useState<string | null>(null);
  const longest = Math.max(0.001, ...publications.map((one) => one.seconds));
  const names = phasesOf(publications);
  return (
    <TableCard
      name="cards publications"
      title="Publications"
      head={
        <>
          <span class="muted">the last {publications.length}, longest {duration(longest)}</span>
          <PhaseLegend names={names} />
        </>
      }
      columns={["Version", "Began", "Phases", "Took", "Replicas"]}
      numbers={["Took"]}
      isTall
      empty={publications.length === 0 && <Empty title="No publication yet">Weights go to the replicas after every step.</Empty>}
    >
      {publications.map((one) => {
        const key = String(one.id);
        return (
          <Line
            key={key}
            publication={one}
            names={names}
            longest={longest}
            isOpen={open === key}
            onToggle={() => setOpen(open === key ? null : key)}
          />
        );
      })}
    </TableCard>
  );
}

interface LineProps {
  publication: Publication;
  names: string[];
  longest: number;
  isOpen: boolean;
  onToggle: () => void;
}

function Line({ publication, names, longest, isOpen, onToggle }: LineProps) {
  const { members } = publication;
  const committed = members.filter((member) => member.committed).length;
  const said = committed === members.length ? plural(committed, "replica") : `${committed} of ${members.length}`;
  return (
    <>
      <tr>
        <th scope="row" class="nowrap">{publication.version}</th>
        <td data-label="Began" class="nowrap tabular">{clock(publication.began)}</td>
        <td class="bar-cell">
          <PhaseBar phases={publication.phases} names={names} longest={longest} />
        </td>
        <td data-label="Took" class="number nowrap">{publication.ended === false ? "under way" : duration(publication.seconds)}</td>
        <td data-label="Replicas" class="nowrap">
          <button type="button" class="link" aria-expanded={isOpen} onClick={onToggle}>
            {said}
          </button>
        </td>
      </tr>
      {isOpen && (
        <tr class="detail">
          <td colspan={5}>
            <ul class="members">
              {members.map((member) => (
                <li key={member.replica_id}>
                  <strong>{member.replica_id}</strong>
                  <Pill state={member.committed ? "committed" : "failed"} />
                  {member.proof && <Pill state={member.proof} />}
                  <span>{[wayOf(member), ...notesOf(member), member.reason].filter(Boolean).join(": ")}</span>
                </li>
              ))}
              {publication.phases.map((phase) => (
                <li key={phase.phase} class="muted">
                  {phase.phase} {duration(phase.to_s - phase.from_s)}
                </li>
              ))}
            </ul>
          </td>
        </tr>
      )}
    </>
  );
}
