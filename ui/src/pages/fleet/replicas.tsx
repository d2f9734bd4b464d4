import type { Replica, Status } from "../../api/types";
import { count, num, percent, versionWords } from "../../format";
import { ask } from "../../parts/ask";
import { Empty, Meter, Pill } from "../../parts/basics";
import { TableCard } from "../../parts/table";
import { hasEnded } from "../../state/live";
import { notesOf, PROOFS, wayOf } from "./weights";

const drain = (id: string, on: boolean, onDone: () => void) =>
  ask({
    title: on ? `Drain ${id}?` : `Let ${id} work again?`,
    words: on
      ? "It finishes the rollouts it has begun and takes no new prompts. Nothing is lost."
      : "It takes prompts again as soon as it has the current weights.",
    verb: on ? "Drain" : "Undo drain",
    path: "/api/actions/drain",
    body: { replica: id, on },
    onDone,
  });

/** How many versions a replica is behind the trainer; versions are `incarnation.version`. */
export function lagOf(version: string, current: number): number | null {
  const own = Number(version.split(".").at(-1));
  return version !== "" && Number.isInteger(own) ? Math.max(0, current - own) : null;
}

interface Props {
  view: Status;
  /** Of replicas by id. */
  addresses: Map<string, string | undefined>;
  onDone: () => void;
}

export function Replicas({ view, addresses, onDone }: Props) {
  const { replicas } = view;
  const canAct = view.operator !== null && view.state === "running";
  return (
    <TableCard
      name="cards replicas"
      title="Rollout replicas"
      head={<span class="muted">{replicas.length}</span>}
      columns={["Replica", "State", "Version", "Weights", "In flight", "Tokens/s", "Waits", "Doing", "Engine", canAct && "Action"]}
      numbers={["In flight", "Tokens/s"]}
      empty={replicas.length === 0 && <Empty title="No replicas">{hasEnded.value ? "The run has ended." : "None has reported in the last seconds."}</Empty>}
    >
      {replicas.map((replica) => (
        <Line
          key={replica.id}
          replica={replica}
          address={addresses.get(replica.id) ?? ""}
          view={view}
          canAct={canAct}
          onDone={onDone}
        />
      ))}
    </TableCard>
  );
}

interface LineProps {
  replica: Replica;
  address: string;
  view: Status;
  canAct: boolean;
  onDone: () => void;
}

function Line({ replica, address, view, canAct, onDone }: LineProps) {
  const lag = lagOf(replica.version, view.version);
  const isDraining = view.operator?.draining.includes(replica.id) ?? false;
  return (
    <tr>
      <th scope="row">
        {replica.id}
        {address && (
          <span class="muted small address" title={address}>
            {address.startsWith("unix:") ? "at a socket" : address}
          </span>
        )}
      </th>
      <td data-label="State">
        <Pill state={isDraining ? "draining" : replica.state} />
      </td>
      <td data-label="Version" class="nowrap">
        {versionWords(replica.version) || num(null)} {lag !== null && lag > 0 && <span class="lag">{lag} behind</span>}
      </td>
      <td data-label="Weights" class="wrap weights">
        {replica.proof && (
          <span title={PROOFS[replica.proof] ?? ""}>
            <Pill state={replica.proof} />
          </span>
        )}{" "}
        {wayOf(replica) || num(null)}
        {notesOf(replica).map((words) => (
          <span key={words} class="muted small note">
            {words}
          </span>
        ))}
      </td>
      <td data-label="In flight" class="number">{count(replica.in_flight_rollouts)}</td>
      <td data-label="Tokens/s" class="number">{num(replica.tokens_per_second)}</td>
      <td data-label="Waits" class="with-meter">
        <Meter share={replica.waiting_share} />
        <span>{percent(replica.waiting_share)}</span>
      </td>
      <td data-label="Doing" class="wrap">{replica.publication || (replica.waiting_for ? `waits for ${replica.waiting_for}` : "generates")}</td>
      <td data-label="Engine">{replica.engine}</td>
      {canAct && (
        <td>
          <button type="button" class="small" onClick={() => drain(replica.id, !isDraining, onDone)}>
            {isDraining ? "Undo drain" : "Drain"}
          </button>
        </td>
      )}
    </tr>
  );
}
