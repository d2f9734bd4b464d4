import { useState } from "preact/hooks";

import { Dialog } from "../../parts/dialog";

interface Props {
  names: string[];
  picked: string[];
  onPick: (names: string[]) => void;
  onClose: () => void;
}

/** All metrics by name; each one picked gets a chart of its own. */
export function Picker({ names, picked, onPick, onClose }: Props) {
  const [wanted, setWanted] = useState("");
  const shown = names.filter((name) => name.toLowerCase().includes(wanted.trim().toLowerCase()));
  const toggle = (name: string, isOn: boolean) =>
    onPick(isOn ? [...picked, name] : picked.filter((one) => one !== name));
  return (
    <Dialog title="Metrics" onClose={onClose} class="picker">
      <label class="field">
        <span>Find</span>
        <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} autofocus />
      </label>
      <fieldset class="checks">
        <legend>
          {shown.length} of {names.length}, {picked.length} picked
        </legend>
        {shown.map((name) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={picked.includes(name)}
              onChange={(event) => toggle(name, event.currentTarget.checked)}
            />
            <span>{name}</span>
          </label>
        ))}
      </fieldset>
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
