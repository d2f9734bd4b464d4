import { useEffect } from "preact/hooks";

import { link, PAGES } from "../state/route";
import { Dialog } from "./dialog";

const KEYS: [string, string][] = [
  ["1", "Run"],
  ["2", "Rollouts"],
  ["3", "Fleet"],
  ["4", "Queues"],
  ["5", "Compare"],
  ["6", "Annotate"],
  ["?", "This help"],
  ["Esc", "Close a dialog, leave a group"],
  ["Up Down Enter", "In the list of rollouts: move, open"],
  ["Left Right", "In a rollout's text: from token to token"],
  ["Drag", "On a chart: zoom to these steps"],
  ["Double click", "On a chart: all steps"],
];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard and mouse" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split(" ").length > 2 ? key.split(" ").map((one) => <kbd key={one}>{one}</kbd>) : <kbd>{key}</kbd>}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="dialog-actions">
        <button type="button" onClick={onClose} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && target.matches("input, select, textarea, [contenteditable]");

/** Keys that work on every page. */
export function useShortcuts(onHelp: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isOurs = !event.repeat && !event.ctrlKey && !event.metaKey && !event.altKey;
      if (!isOurs || isTyping(event.target) || document.querySelector("dialog[open]")) {
        return;
      }
      const page = PAGES[Number(event.key) - 1];
      if (page) {
        location.hash = link(page);
      } else if (event.key === String(PAGES.length + 1)) {
        location.assign("/annotate");
      } else if (event.key === "?") {
        onHelp();
      } else {
        return;
      }
      event.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
