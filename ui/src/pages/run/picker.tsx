import { useState } from "preact/hooks";

import { described, GROUPS } from "../../charts/metrics";
import { Dialog } from "../../parts/dialog";

interface Props {
  names: string[];
  picked: string[];
  onPick: (names: string[]) => void;
  onClose: () => void;
}

/** All metrics by group, each with its unit and its sentence; each one picked gets a chart of its own. */
export function Picker({ names, picked, onPick, onClose }: Props) {
  const [wanted, setWanted] = useState("");
  const sought = wanted.trim().toLowerCase();
  const shown = names.filter((name) => `${name} ${described(name).text}`.toLowerCase().includes(sought));
  const toggle = (name: string, isOn: boolean) =>
    onPick(isOn ? [...picked, name] : picked.filter((one) => one !== name));
  return (
    <Dialog title="Metrics" onClose={onClose} class="picker">
      <label class="field">
        <span>Find</span>
        <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} autofocus />
      </label>
      <p class="muted small">
        {shown.length} of {names.length}, {picked.length} picked
      </p>
      <div class="checks">
        {GROUPS.map((group) => [group, shown.filter((name) => described(name).group === group)] as const)
          .filter(([, own]) => own.length > 0)
          .map(([group, own]) => (
            <fieldset key={group}>
              <legend>{group}</legend>
              {own.map((name) => (
                <label key={name}>
                  <input
                    type="checkbox"
                    checked={picked.includes(name)}
                    onChange={(event) => toggle(name, event.currentTarget.checked)}
                  />
                  <span>
                    {name} <span class="muted small">{[described(name).unit, described(name).text].filter(Boolean).join(": ")}</span>
                  </span>
                </label>
              ))}
            </fieldset>
          ))}
      </div>
      <div class="dialog-actions">
        <button type="button" onClick={() => onPick([])} disabled={picked.length === 0}>
          None
        </button>
        <button type="button" class="primary" onClick={onClose}>
          Done
        </button>
      </div>
    </Dialog>
  );
}
