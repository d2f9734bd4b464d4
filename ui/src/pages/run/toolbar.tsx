import { AXES } from "../../charts/axis";
import type { Smoothing } from "../../charts/smoothing";
import { count } from "../../format";
import { Segmented } from "../../parts/basics";
import { setParams } from "../../state/route";
import type { View } from "./view";

const WINDOWS = [
  { value: "", label: "All" },
  { value: "1000", label: "Last 1,000" },
  { value: "100", label: "Last 100" },
];
export const SMOOTHING: { value: Smoothing; label: string }[] = [
  { value: "off", label: "Off" },
  { value: "some", label: "Some" },
  { value: "much", label: "Much" },
];

const ALONG = AXES.map((value) => ({ value, label: `${value[0]?.toUpperCase()}${value.slice(1)}` }));
const SCALES = [
  { value: "", label: "Linear" },
  { value: "log", label: "Log" },
];

export function Toolbar(props: { view: View; last: number; isLoading: boolean; onPick: () => void }) {
  const { view, last, isLoading, onPick } = props;
  const { zoom } = view;
  return (
    <div class="toolbar">
      <div class="tool">
        <span class="toolbar-label">Steps</span>
        <Segmented
          label="Steps shown"
          value={zoom ? "zoom" : view.newest}
          choices={WINDOWS}
          onChoose={(newest) => setParams({ newest, from: "", to: "" })}
        />
      </div>
      <form class="step-range" onSubmit={takeRange} key={`${zoom?.from}-${zoom?.to}`}>
        <input name="from" type="number" min={1} aria-label="From step" placeholder="from" defaultValue={zoom?.from} />
        <span aria-hidden="true">{"\u2013"}</span>
        <input name="to" type="number" min={1} aria-label="To step" placeholder={count(last)} defaultValue={zoom?.to} />
        <button type="submit">Show</button>
      </form>
      <div class="tool">
        <span class="toolbar-label">Smoothing</span>
        <Segmented
          label="Smoothing"
          value={view.smoothing}
          choices={SMOOTHING}
          onChoose={(smooth) => setParams({ smooth })}
        />
      </div>
      <div class="tool">
        <span class="toolbar-label">Along</span>
        <Segmented label="Horizontal axis" value={view.x} choices={ALONG} onChoose={(x) => setParams({ x })} />
        <Segmented label="Scale" value={view.isLog ? "log" : ""} choices={SCALES} onChoose={(y) => setParams({ y })} />
      </div>
      <button type="button" onClick={onPick}>
        Metrics
      </button>
      <span class="muted small" role="status">
        {isLoading ? "Loading" : ""}
      </span>
    </div>
  );
}

function takeRange(event: SubmitEvent): void {
  event.preventDefault();
  const fields = new FormData(event.currentTarget as HTMLFormElement);
  const [from, to] = ["from", "to"].map((name) => String(fields.get(name) ?? ""));
  setParams({ from: from || (to ? "1" : ""), to: to ?? "", newest: "" });
}
