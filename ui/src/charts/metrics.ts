// What the numbers of a step mean, and how their values are written; metrics.json is generated from the trainer's table.

import { bytes, duration, num, percent } from "../format";
import table from "./metrics.json";

export interface Metric {
  group: string;
  /** Empty, or the unit's name. */
  unit: string;
  text: string;
}

export type Format = (value: number | null) => string;

const NAMED: Record<string, Metric> = Object.fromEntries(table.map(([name = "", group = "", unit = "", text = ""]) => [name, { group, unit, text }]));
const FAMILIES = Object.keys(NAMED).filter((name) => name.endsWith("*"));
const UNKNOWN: Metric = { group: "Other", unit: "", text: "" };
/** In the order of the dialog. */
export const GROUPS = [...new Set(Object.values(NAMED).map((one) => one.group)), UNKNOWN.group];

const OF_COMPONENT: Record<string, string> = {
  mean: "Mean over the rollouts that have the component.",
  std: "Standard deviation over the rollouts that have the component.",
  abstained: "Share of the rollouts that it could not score.",
  weighted: "What it adds to the mean reward: its mean times its weight.",
};

export function described(name: string): Metric {
  const found = NAMED[name] ?? NAMED[FAMILIES.find((family) => name.startsWith(family.slice(0, -1))) ?? ""] ?? UNKNOWN;
  const measure = /\/(accuracy|reward_mean)$/.exec(name)?.[1];
  if (found === UNKNOWN && measure) {
    return NAMED[measure] ?? found; // Of an evaluation set with a name.
  }
  const [family, , ...rest] = name.split("/");
  const number = rest.at(-1) ?? "";
  if (family !== "rewards" || !(number in OF_COMPONENT)) {
    return found;
  }
  return { ...found, unit: number === "abstained" ? "share" : "", text: OF_COMPONENT[number] ?? "" };
}

const FORMATS: Record<string, Format> = {
  share: (value) => percent(value, 1),
  seconds: duration,
  bytes: (value) => (value === null ? num(value) : bytes(value)),
};

export const formatOf = (name: string): Format => FORMATS[described(name).unit] ?? num;

/** The unit that stands beside a title; empty where each value has it. */
export const unitOf = (name: string): string => (described(name).unit in FORMATS ? "" : described(name).unit);

/** A component of the reward, where the name is of its mean. */
export const componentOf = (name: string): string | undefined => /^rewards\/([^/]+)\/mean$/.exec(name)?.[1];
