import type { ComponentChildren } from "preact";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children && <p>{children}</p>}
    </div>
  );
}

/** Something could not be had; `again` asks once more. */
export function Problem({ words, again }: { words: string; again?: () => void }) {
  return (
    <div class="problem-box" role="alert">
      <p>{words}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="loading" role="status">
      Loading {what}
    </p>
  );
}

const TONES: Record<string, string> = {
  serving: "good",
  running: "good",
  training: "good",
  finished: "good",
  alive: "good",
  proven: "good",
  updating: "busy",
  starting: "busy",
  pending_weights: "busy",
  waiting: "busy",
  sleeping: "plain",
  canary: "warn",
  draining: "warn",
  paused: "warn",
  stopping: "warn",
  stopped: "warn",
  quarantined: "bad",
  failed: "bad",
  gone: "bad",
  absent: "bad",
};

/** A state in a word; its colour only repeats what the word says. */
export function Pill({ state }: { state: string }) {
  const key = state.toLowerCase();
  return <span class={`pill ${TONES[key] ?? "plain"}`}>{key.replaceAll("_", " ")}</span>;
}

interface Choice<T extends string> {
  value: T;
  label: string;
}

export function Segmented<T extends string>(props: {
  label: string;
  value: T;
  choices: Choice<T>[];
  onChoose: (value: T) => void;
}) {
  return (
    <div class="segmented" role="group" aria-label={props.label}>
      {props.choices.map(({ value, label }) => (
        <button
          key={value}
          type="button"
          aria-pressed={value === props.value}
          onClick={() => props.onChoose(value)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

/** A share as a bar beside its number. */
export function Meter({ share, tone = "accent" }: { share: number; tone?: string }) {
  const width = 100 * Math.min(1, Math.max(0, share));
  return (
    <svg class={`meter ${tone}`} viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="meter-rest" width="100" height="6" />
      <rect class="meter-part" width={width} height="6" />
    </svg>
  );
}
