import { useState } from "preact/hooks";

import type { ConfigKey } from "../../api/types";
import { plural } from "../../format";
import { Empty, Segmented } from "../../parts/basics";
import { TableCard } from "../../parts/table";

type Shown = "differences" | "all";

const CHOICES: { value: Shown; label: string }[] = [
  { value: "differences", label: "Differences" },
  { value: "all", label: "All" },
];

function said(value: unknown): string {
  if (value === null || value === undefined) {
    return "\u2013";
  }
  if (typeof value === "number") {
    return String(Number(value.toPrecision(12)));
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function ConfigTable({ runs, keys }: { runs: string[]; keys: ConfigKey[] }) {
  const [shown, setShown] = useState<Shown>("differences");
  const differing = keys.filter((key) => key.differs);
  const rows = shown === "all" ? keys : differing;
  return (
    <TableCard
      name="config"
      title="Configuration"
      head={
        <>
          <span class="muted">{plural(differing.length, "difference")}</span>
          <Segmented label="Keys shown" value={shown} choices={CHOICES} onChoose={setShown} />
        </>
      }
      columns={["Key", ...runs]}
      isTall
      empty={
        rows.length === 0 && (
          <Empty title="No differences">
            {runs.length > 1 ? "These runs have the same configuration." : "Pick a second run to see what differs."}
          </Empty>
        )
      }
    >
      {rows.map(({ key, values, differs }) => (
        <tr key={key} class={differs ? "differs" : ""}>
          <th scope="row">{key}</th>
          {runs.map((run, at) => (
            <td key={run} class="wrap">
              {said(values[at])}
            </td>
          ))}
        </tr>
      ))}
    </TableCard>
  );
}
