// The token that this tab shows the orchestrator: from the link `#token=...` or from a form, kept until the tab is closed.

import { signal } from "@preact/signals";

const KEY = "headrace.token";

/** Why the orchestrator refuses what this tab asks; null = it does not. */
export const refusal = signal<string | null>(null);

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export function keepToken(token: string): void {
  sessionStorage.setItem(KEY, token);
}

/** The header of every request. */
export function authorization(): Record<string, string> {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Whether a request was refused for want of a token, or of one of another role. */
export const isTokenWanted = (status: number) => status === 401 || status === 403;
