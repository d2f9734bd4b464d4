import { useState } from "preact/hooks";

import type { LogLine } from "../../api/types";
import { clock, duration, percent, plural } from "../../format";
import { Empty, Segmented } from "../../parts/basics";
import { TableCard } from "../../parts/table";
import { log } from "../../state/live";

type Kind = "all" | "actions" | "publications";

const KINDS: { value: Kind; label: string }[] = [
  { value: "all", label: "All" },
  { value: "actions", label: "Actions" },
  { value: "publications", label: "Publications" },
];
const SHOWN = 100;
const LONG = 300;
const ACTIONS = new Set(["operator_action", "requeued"]);

const isOf = (kind: Kind, { event }: LogLine) =>
  kind === "all" || (kind === "actions" ? ACTIONS.has(event) : event.startsWith("publication"));

const plain = (value: unknown) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));

type Words = (fields: Record<string, unknown>) => string;

const open = (groups: unknown) => (Array.isArray(groups) && groups.length > 0 ? `, ${plural(groups.length, "group")} open` : "");
const WORDS: Record<string, Words> = {
  run_ended: ({ version, open_groups }) => `The run is finished at version ${plain(version)}${open(open_groups)}`,
  run_stopped: ({ version, open_groups }) => `The run was stopped at version ${plain(version)}${open(open_groups)}`,
  incarnation_opened: ({ incarnation, version }) => `The trainer's life ${plain(incarnation)} begins at version ${plain(version)}`,
  stage_began: ({ step }) => `The stage begins at step ${plain(step)}`,
  replay_began: ({ version, last }) => `Steps ${Number(version) + 1} to ${plain(last)} are trained again from the journal`,
  checkpoint_saved: ({ step, kept }) => `Checkpoint of step ${plain(step)}; kept are ${Array.isArray(kept) ? kept.join(", ") : plain(kept)}`,
  operator_checkpoint: ({ version }) => `Checkpoint at version ${plain(version)}, as asked`,
  exported: ({ path, step, files }) => `The model of step ${plain(step)} is in ${plain(path)}${Array.isArray(files) ? `, ${plural(files.length, "file")}` : ""}`,
  config_written: () => "The run is resumed with another config",
  code_changed: ({ files }) => `The run's own code has changed: ${Array.isArray(files) ? files.join(", ") : plain(files)}`,
  replica_quarantined: ({ replica_id, version, reason }) => `${plain(replica_id)} is set aside at version ${plain(version)}: ${plain(reason)}`,
  engine_asleep: ({ seconds }) => `The engine sleeps, after ${duration(Number(seconds))}`,
  engine_awake: ({ seconds }) => `The engine is awake, after ${duration(Number(seconds))}`,
  operator_action: ({ said, who }) => `${plain(said)} (by ${plain(who)})`,
  requeued: ({ group_id, who }) => `${plain(group_id)} is issued again (by ${plain(who)})`,
  publication: ({ version, members, seconds }) => {
    const all: { committed?: boolean }[] = Array.isArray(members) ? members : [];
    const took = typeof seconds === "number" ? ` in ${duration(seconds)}` : "";
    return `Version ${plain(version)} to ${plural(all.filter((one) => one.committed).length, "replica")} of ${all.length}${took}`;
  },
  publication_committed: ({ version, replica_id, route }) => `Version ${plain(version)} on ${plain(replica_id)} over ${plain(route)}`,
  abstentions_high: ({ share, episodes, reasons, lengths }) =>
    `${percent(Number(share), 1)} of the last ${plain(episodes)} episodes abstained, by reason ${plain(reasons)}, by tokens ${plain(lengths)}`,
  determinism_broken: ({ rollout_id, error }) => `A time limit ended ${plain(rollout_id)}, which is not deterministic: ${plain(error)}`,
  state_damaged: ({ moved_to, reason }) => `The state was damaged (${plain(reason)}) and lies now in ${plain(moved_to)}`,
};

/** A line of the event log in words. */
export function wordsOf({ t: _, service: __, event, ...others }: LogLine): string {
  const words = WORDS[event];
  if (words) {
    return words(others);
  }
  return Object.entries(others)
    .filter(([, value]) => !(Array.isArray(value) && value.length === 0))
    .map(([key, value]) => `${key} ${plain(value)}`)
    .join(", ");
}

export function EventLog() {
  const [kind, setKind] = useState<Kind>("all");
  const lines = log.value.filter((line) => isOf(kind, line)).slice(0, SHOWN);
  return (
    <TableCard
      name="log"
      title="Event log"
      head={<Segmented label="Events shown" value={kind} choices={KINDS} onChoose={setKind} />}
      columns={["Time", "Event", "What"]}
      empty={lines.length === 0 && <Empty title="Nothing yet">Actions of operators and publications of weights are listed here.</Empty>}
    >
      {lines.map((line, at) => (
        <tr key={`${line.t}-${lines.length - at}`}>
          <td class="nowrap tabular">{clock(line.t)}</td>
          <td class="nowrap">{line.event === "operator_action" ? plain(line.action) : line.event.replaceAll("_", " ")}</td>
          <td class="wrap">{wordsOf(line).length > LONG ? <details><summary>{wordsOf(line).slice(0, LONG)}…</summary>{wordsOf(line)}</details> : wordsOf(line)}</td>
        </tr>
      ))}
    </TableCard>
  );
}
