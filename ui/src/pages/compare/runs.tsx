import type { RunEntry } from "../../api/types";
import { seriesColour } from "../../charts/paint";
import { clock, count, num, percent } from "../../format";
import { Empty, Pill } from "../../parts/basics";
import { TableCard } from "../../parts/table";
import { MOST } from "./page";

interface Props {
  runs: RunEntry[];
  picked: string[];
  onPick: (names: string[]) => void;
}

export function RunTable({ runs, picked, onPick }: Props) {
  if (runs.length === 0) {
    return <Empty title="No runs">There are no run directories beside this one.</Empty>;
  }
  const toggle = (name: string, isOn: boolean) =>
    onPick(isOn ? [...picked, name] : picked.filter((one) => one !== name));
  return (
    <TableCard
      name="cards runs"
      title="Runs"
      head={<span class="muted">{picked.length} picked of {runs.length}, at most {MOST}</span>}
      columns={["Run", "State", "Steps", "Reward", "Accuracy", "Began"]}
      numbers={["Steps", "Reward", "Accuracy"]}
    >
      {runs.map((run) => {
        const at = picked.indexOf(run.name);
        return (
          <tr key={run.name}>
            <th scope="row">
              <label class="check">
                <input
                  type="checkbox"
                  checked={at >= 0}
                  disabled={at < 0 && picked.length >= MOST}
                  onChange={(event) => toggle(run.name, event.currentTarget.checked)}
                />
                <span class={`swatch ${at >= 0 ? seriesColour(at).slice(2) : ""}`} aria-hidden="true" />
                <span>{run.name}</span>
                {run.current && <span class="muted small">this run</span>}
              </label>
            </th>
            <td data-label="State">
              <Pill state={run.state} />
            </td>
            <td data-label="Steps" class="number">{count(run.steps)}</td>
            <td data-label="Reward" class="number">{num(run.reward_mean)}</td>
            <td data-label="Accuracy" class="number">{percent(run.accuracy, 1)}</td>
            <td data-label="Began" class="nowrap tabular">{clock(run.began)}</td>
          </tr>
        );
      })}
    </TableCard>
  );
}
