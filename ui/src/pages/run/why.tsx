import type { MovedRow, StepDifferences } from "../../api/types";
import { num, percent, plural } from "../../format";
import { Loading, Problem } from "../../parts/basics";
import { Dialog } from "../../parts/dialog";
import { useResource } from "../../parts/resource";
import { link, setParams } from "../../state/route";

const MOST = 20;
const COLUMNS = ["What", "Before", "Now", "Size", "Since step", "Rollouts"];

/** What moved most in a step against the steps before it. */
export function Why({ step }: { step: number }) {
  const { data, problem } = useResource<StepDifferences>(`/api/why/${step}`);
  return (
    <Dialog title={`Step ${step} against the steps before it`} onClose={() => setParams({ step: "" })} class="why">
      {problem ? <Problem words={problem} /> : data === null ? <Loading what="the comparison" /> : <Rows found={data} />}
    </Dialog>
  );
}

function Rows({ found }: { found: StepDifferences }) {
  return (
    <>
      <p class="muted small">
        {plural(found.rollouts, "rollout")} against {found.rollouts_before} of {plural(found.steps_before.length, "step")}. Size: in standard
        deviations. {found.notes.join(". ")}
      </p>
      <table class="plain-table">
        <thead>
          <tr>{COLUMNS.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {found.rows.slice(0, MOST).map((row) => (
            <tr key={`${row.measure} ${row.column} ${row.label}`}>
              <td>{row.column ? `${row.measure} of ${row.column} ${row.label}` : row.measure}</td>
              <td class="number">{shown(row, row.before)}</td>
              <td class="number">{shown(row, row.now)}</td>
              <td class="number">{row.size.toFixed(1)}</td>
              <td class="number">{row.since}</td>
              <td><Examples when="before" of={row.examples_before} /> <Examples when="now" of={row.examples_now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

const shown = ({ unit }: MovedRow, value: number) => (unit === "share" ? percent(value, 1) : `${num(value)} ${unit}`.trim());

function Examples({ when, of: examples = [] }: { when: string; of?: MovedRow["examples_now"] }) {
  return (
    <>
      {examples.map(({ id, step, group_index, text }) => (
        <a key={id} href={link("rollouts", [step, group_index], { rollout: id.split("/").at(-1) ?? "" })} title={text}>
          {when} g{group_index}{" "}
        </a>
      ))}
    </>
  );
}
