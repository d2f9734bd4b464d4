import { useEffect, useRef, useState } from "preact/hooks";

import type { Query } from "../../api/client";
import type { Params } from "../../state/route";
import { setParams } from "../../state/route";

interface Field {
  name: string;
  label: string;
  isNumber?: boolean;
}

const FIELDS: Field[] = [
  { name: "step_from", label: "Step from", isNumber: true },
  { name: "step_to", label: "Step to", isNumber: true },
  { name: "reward_min", label: "Reward from", isNumber: true },
  { name: "reward_max", label: "Reward to", isNumber: true },
  { name: "version", label: "Version", isNumber: true },
  { name: "finish", label: "Finish" },
  { name: "replica", label: "Replica" },
  { name: "set", label: "Set" },
  { name: "component", label: "Component" },
  { name: "component_min", label: "Its score from", isNumber: true },
  { name: "component_max", label: "Its score to", isNumber: true },
  { name: "text", label: "Text contains" },
];
const WAIT_MS = 250;

/** The filters, the order and whose rollouts, as `/api/rollouts` takes them. */
export function queryOf(params: Params): Query {
  const chosen = FIELDS.flatMap(({ name }) => (params[name] ? [[name, params[name]]] : []));
  return { ...Object.fromEntries(chosen), sort: params.sort || "-step", of: params.of };
}

const FOLDER: Record<string, string> = { set: "evaluations", replica: "training" };
const isShown = ({ name }: Field, params: Params) =>
  (FOLDER[name] ?? params.of ?? "training") === (params.of ?? "training") &&
  (params.component || !name.startsWith("component_"));

const hasFilters = (params: Params) => FIELDS.some(({ name }) => params[name]);

/** What stands in the fields: the address follows when the typing pauses, and is not in the way of who types. */
function useTyped(params: Params) {
  const [typed, setTyped] = useState<Params>({});
  const pending = useRef<Params>({});
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const forget = () => {
    clearTimeout(timer.current);
    pending.current = {};
  };
  useEffect(() => forget, []);
  return {
    valueOf: (name: string) => {
      const [mine, theirs] = [typed[name], params[name] ?? ""];
      return mine !== undefined && (name in pending.current || mine.trim() === theirs) ? mine : theirs;
    },
    changed: (event: Event) => {
      const { name, value } = event.currentTarget as HTMLInputElement | HTMLSelectElement;
      setTyped((old) => ({ ...old, [name]: value }));
      pending.current = { ...pending.current, [name]: value.trim() };
      clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        const changes = pending.current;
        forget();
        setParams(changes);
      }, WAIT_MS);
    },
    clear: () => {
      forget();
      setTyped({});
      setParams(Object.fromEntries(FIELDS.map(({ name }) => [name, ""])));
    },
  };
}

/** `known` has the values of what is chosen from a list. */
export function Filters({ params, known }: { params: Params; known: Record<string, string[]> }) {
  const { valueOf, changed, clear } = useTyped(params);
  return (
    <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      {FIELDS.filter((one) => isShown(one, params)).map(({ name, label, isNumber }) => (
        <label key={name} class={`field ${name}`}>
          <span>{label}</span>
          {known[name] ? (
            <select name={name} value={valueOf(name)} onChange={changed}>
              <option value="">any</option>
              {known[name].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          ) : (
            <input
              name={name}
              type="text"
              inputMode={isNumber ? "decimal" : "text"}
              value={valueOf(name)}
              onInput={changed}
              spellcheck={false}
              autocomplete="off"
            />
          )}
        </label>
      ))}
      <button
        type="button"
        disabled={!hasFilters(params)}
        onClick={clear}
      >
        Clear
      </button>
    </form>
  );
}
