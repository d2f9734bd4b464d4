// Dark, light, or as the system has it: kept in this browser.

import { signal } from "@preact/signals";

const KEY = "headrace.theme";
const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const theme = signal<Theme>("system");
/** Counts changes of what colours are computed to. */
export const paint = signal(0);

function apply(next: Theme): void {
  theme.value = next;
  document.documentElement.dataset.theme = next;
  paint.value += 1;
}

export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(KEY, next);
  apply(next);
}

export function beginTheme(): void {
  const stored = localStorage.getItem(KEY);
  apply(THEMES.find((one) => one === stored) ?? "system");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paint.value += 1;
  });
}
