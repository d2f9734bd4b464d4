import type { ComponentChildren } from "preact";

import { duration } from "../format";
import { connection, hasEnded, heardAt } from "../state/live";
import { link, PAGES } from "../state/route";
import { nextTheme, theme } from "../state/theme";
import { ticking } from "./clock";

const TITLES = { run: "Run", rollouts: "Rollouts", fleet: "Fleet", queues: "Queues", compare: "Compare" };

interface Props {
  title: string;
  /** The page that is shown. */
  current: string;
  /** None: the page does not follow the run, and has its own keys. */
  onHelp?: () => void;
  children: ComponentChildren;
}

export function Shell({ title, current, onHelp, children }: Props) {
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <div class="brand">
          <img src="/icon.svg" alt="" width="26" height="26" />
          <div class="brand-words">
            <span class="brand-name">Headrace</span>
            <h1 class="run-name">{title}</h1>
          </div>
        </div>
        <Navigation current={current} />
        <div class="top-end">
          {onHelp && <Freshness />}
          <button type="button" class="quiet" onClick={nextTheme} aria-label={`Colours: ${theme.value}; change them`}>
            {{ system: "Auto", light: "Light", dark: "Dark" }[theme.value]}
          </button>
          {onHelp && (
            <button type="button" class="quiet" onClick={onHelp} aria-label="Keyboard shortcuts" aria-keyshortcuts="?">
              ?
            </button>
          )}
        </div>
      </header>
      <main id="content" tabindex={-1}>
        {children}
      </main>
    </>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function Navigation({ current }: { current: string }) {
  return (
    <nav class="pages" aria-label="Pages">
      {PAGES.map((page, at) => (
        <a
          key={page}
          href={`/${link(page)}`}
          aria-current={current === page ? "page" : undefined}
          aria-keyshortcuts={String(at + 1)}
        >
          {TITLES[page]}
        </a>
      ))}
      <a
        href="/annotate"
        aria-current={current === "annotate" ? "page" : undefined}
        aria-keyshortcuts={String(PAGES.length + 1)}
      >
        Annotate
      </a>
    </nav>
  );
}

function Freshness() {
  const age = heardAt.value > 0 ? (ticking.value - heardAt.value) / 1000 : 0;
  const words = {
    connecting: "Connecting",
    live: hasEnded.value ? "Ended" : "Live",
    reconnecting: `Reconnecting, data ${duration(Math.max(1, Math.round(age)))} old`,
  }[connection.value];
  return (
    <span class={`freshness ${hasEnded.value ? "" : connection.value}`} role="status">
      <span class="dot" aria-hidden="true" />
      <span>{words}</span>
    </span>
  );
}
