// Evaluations: which of their numbers are drawn. Those of a set with a name are NAME/accuracy and so on.

import type { Evaluation, Points } from "../api/types";

const MEASURES = [/(^|\/)accuracy$/, /(^|\/)reward_mean$/];

const numberOf = (one: Evaluation, key: string): number | null => {
  const value: unknown = (one as Record<string, unknown>)[key];
  return typeof value === "number" ? value : null;
};

/** The accuracy of each set; where no set has one, as with graded scores, the mean rewards. */
export function measuresOf(evals: Evaluation[]): string[] {
  const known = new Set(evals.flatMap((one) => Object.keys(one).filter((key) => numberOf(one, key) !== null)));
  const found = MEASURES.map((measure) => [...known].filter((key) => measure.test(key)));
  return found.find((keys) => keys.length > 0) ?? [];
}

/** The set's name; empty for one without. */
export const setOf = (key: string): string => key.slice(0, Math.max(0, key.lastIndexOf("/")));

export const REWARD_HINT = "Mean reward of held-out prompts";

export const evalTitle = (key: string): string => (key.endsWith("reward_mean") ? "Held-out reward" : "Held-out accuracy");

/** One number over the versions, where its set was evaluated. */
export function evalPoints(evals: Evaluation[], key: string): Points {
  const own = evals.filter((one) => key in one).toSorted((a, b) => a.version - b.version);
  return { x: own.map((one) => one.version), y: own.map((one) => numberOf(one, key)) };
}
