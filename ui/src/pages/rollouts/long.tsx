import type { ComponentChild } from "preact";
import { useState } from "preact/hooks";

import { count } from "../../format";

/** So many of tokens or characters are drawn at once: a browser takes seconds for more. */
const MOST = 10_000;

interface Long {
  /** How many of them are drawn. */
  shown: number;
  /** Asks for the others; null where there are none. */
  more: ComponentChild;
}

/** The beginning of something long, until somebody wants all of it. */
export function useLong(length: number, what: string, most = MOST): Long {
  const [isWhole, setWhole] = useState(false);
  if (isWhole || length <= most) {
    return { shown: length, more: null };
  }
  const more = (
    <p class="muted small note">
      The first {count(most)} of {count(length)} {what} are shown.{" "}
      <button type="button" class="link" onClick={() => setWhole(true)}>
        Show all
      </button>
    </p>
  );
  return { shown: most, more };
}

/** Plain text, the beginning of it where it is long. */
export function LongText({ text, class: name, label }: { text: string; class: string; label: string }) {
  const { shown, more } = useLong(text.length, "characters", 5 * MOST);
  return (
    <>
      <div class={name} tabindex={0} role="group" aria-label={label}>
        {text.slice(0, shown)}
      </div>
      {more}
    </>
  );
}
