// The token that this tab shows the orchestrator: from the link `#token=...` or from a form, kept until the tab is closed.

import { signal } from "@preact/signals";

const KEY = "headrace.token";

/** Why the orchestrator refuses what this tab asks; null = it does not. */
export const refusal = signal<string | null>(null);

/** Why the token of a link was not taken; empty = it was, or there was none. */
export const linkProblem = signal("");

export const NO_TOKEN = "This is no token: one has ASCII letters and digits alone, without blanks. Copy it once more.";

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/**
 * Whether a text can be sent as a token. A header takes no character above U+00FF: fetch would throw before it sends
 * anything, with every request of the tab.
 */
export const isToken = (text: string) => /^[\x21-\x7e]+$/.test(text);

export function keepToken(token: string): void {
  sessionStorage.setItem(KEY, token);
}

/** The header of every request. `token`: another than that of the tab, for this request alone. */
export function authorization(token = sessionStorage.getItem(KEY)): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Whether a request was refused for want of a token, or of one of another role: a 403 may have other reasons. */
export function isTokenWanted(answer: Response): boolean {
  const challenge = answer.headers.get("WWW-Authenticate") ?? "";
  return answer.status === 401 || (answer.status === 403 && challenge.includes("insufficient_scope"));
}
