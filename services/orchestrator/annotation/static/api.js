// What the page asks of the service it came from.

import * as token from "./token.js";

const DEADLINE_MS = 10_000;

/** The service has answered, and said no. */
export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }

  /** Whether the same request may go better later. */
  get isPassing() {
    return this.status >= 500;
  }
}

async function ask(path, options = {}) {
  const answer = await fetch(path, {
    cache: "no-store",
    redirect: "error",
    signal: AbortSignal.timeout(DEADLINE_MS),
    ...options,
    headers: { ...token.authorization(), ...options.headers },
  });
  const found = await answer.json();
  if (token.isWanted(answer)) {
    token.ask(token.isKnown() ? found.error : "");
  }
  if (!answer.ok) {
    throw new Refused(answer.status, found.error ?? `status ${answer.status}`);
  }
  return found;
}

function act(path, body) {
  return ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

export const next = (annotator) => ask(`/api/annotation/next?annotator=${encodeURIComponent(annotator)}`);
export const summary = () => ask("/api/annotation/summary");
export const vote = (annotator, pair, choice) => act("/api/annotation/votes", { annotator, pair, choice });
export const undo = (annotator, pair) => act("/api/annotation/undo", { annotator, pair });
