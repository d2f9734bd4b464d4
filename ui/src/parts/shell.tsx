import type { ComponentChildren } from "preact";

import { duration } from "../format";
import { connection, heardAt, status } from "../state/live";
import { link, PAGES, route } from "../state/route";
import { nextTheme, theme } from "../state/theme";
import { ticking } from "./clock";

const TITLES = { run: "Run", rollouts: "Rollouts", fleet: "Fleet", queues: "Queues", compare: "Compare" };

export function Shell({ onHelp, children }: { onHelp: () => void; children: ComponentChildren }) {
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
            <h1 class="run-name">{status.value?.run.name ?? "Run"}</h1>
          </div>
        </div>
        <Navigation />
        <div class="top-end">
          <Freshness />
          <button type="button" class="quiet" onClick={nextTheme} aria-label={`Colours: ${theme.value}; change them`}>
            {{ system: "Auto", light: "Light", dark: "Dark" }[theme.value]}
          </button>
          <button type="button" class="quiet" onClick={onHelp} aria-label="Keyboard shortcuts" aria-keyshortcuts="?">
            ?
          </button>
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

function Navigation() {
  return (
    <nav class="pages" aria-label="Pages">
      {PAGES.map((page, at) => (
        <a
          key={page}
          href={link(page)}
          aria-current={route.value.page === page ? "page" : undefined}
          aria-keyshortcuts={String(at + 1)}
        >
          {TITLES[page]}
        </a>
      ))}
      <a href="/annotate" aria-keyshortcuts={String(PAGES.length + 1)}>
        Annotate
      </a>
    </nav>
  );
}

function Freshness() {
  const age = heardAt.value > 0 ? (ticking.value - heardAt.value) / 1000 : 0;
  const words = {
    connecting: "Connecting",
    live: "Live",
    reconnecting: `Reconnecting, data ${duration(Math.max(1, Math.round(age)))} old`,
  }[connection.value];
  return (
    <span class={`freshness ${connection.value}`} role="status">
      <span class="dot" aria-hidden="true" />
      <span>{words}</span>
    </span>
  );
}
