// Which of the few shades a token has. The style sheet has a class for each; text on every one is legible.

import type { Token } from "../../api/types";

export type Mode = "advantage" | "logprob" | "plain";

export interface Shade {
  name: string;
  label: string;
}

/** Surprise (-logprob in nats) up to which a shade goes; the last has no bound. */
const SURPRISE = [0.05, 0.2, 0.5, 1, 2, 4];
const STEPS = 4;

export const LOGPROB_SHADES: Shade[] = [...SURPRISE, null].map((bound, at) => ({
  name: `lp-${at}`,
  label: bound === null ? `under -${SURPRISE.at(-1)}` : `to -${bound}`,
}));

/** From the lowest to the highest advantage, as shares of the largest in the group. */
export const ADVANTAGE_SHADES: Shade[] = Array.from({ length: 2 * STEPS + 1 }, (_, at) => {
  const step = at - STEPS;
  return { name: `adv-${step < 0 ? "m" : "p"}${Math.abs(step)}`, label: `${(100 * step) / STEPS}%` };
});

export function largestAdvantage(tokens: Token[]): number {
  return tokens.reduce((most, { advantage }) => Math.max(most, Math.abs(advantage ?? 0)), 0);
}

/** The class of a token; empty where there is nothing to show. */
export function shadeOf(token: Token, mode: Mode, largest: number): string {
  if (mode === "logprob" && token.logprob !== null) {
    const at = SURPRISE.findIndex((bound) => -(token.logprob ?? 0) <= bound);
    return `lp-${at < 0 ? SURPRISE.length : at}`;
  }
  if (mode === "advantage" && token.advantage !== null && largest > 0) {
    const step = Math.round((STEPS * token.advantage) / largest);
    return `adv-${step < 0 ? "m" : "p"}${Math.abs(step)}`;
  }
  return "";
}
