// The charts of the Run page. Further metrics are picked by name and get a chart each.

import type { Evaluation } from "../api/types";
import { evalTitle, measuresOf, REWARD_HINT, setOf } from "./evals";
import { componentOf, described } from "./metrics";
import { OTHER, PARTS, PHASES, WHOLE } from "./phases";

export interface Curve {
  name: string;
  label: string;
}

export interface ChartSpec {
  id: string;
  title: string;
  /** What its curves' own sentences do not say. */
  hint?: string;
  /** The first one's unit is the chart's. */
  curves: Curve[];
  kind?: "lines" | "phases" | "evals";
  /** Has a curve for each component of the reward: of this number. */
  component?: "mean" | "weighted" | "abstained";
}

/** Curves by name, each with its label. */
const labelled = (labels: Record<string, string>): Curve[] => Object.entries(labels).map(([name, label]) => ({ name, label }));
const one = (name: string, label = name) => labelled({ [name]: label });

export const CHARTS: ChartSpec[] = [
  {
    id: "reward",
    title: "Reward",
    curves: labelled({ reward_mean: "mean", reward_min: "smallest", reward_max: "largest" }),
  },
  { id: "components", title: "Reward by component", hint: "Mean of each component", component: "mean", curves: [] },
  {
    id: "weighted",
    title: "Parts of the reward",
    hint: "What each component adds to the mean reward: its mean times its weight",
    component: "weighted",
    curves: [],
  },
  {
    id: "abstained",
    title: "Abstained",
    hint: "Share of the batch's rollouts that a scorer could not score",
    component: "abstained",
    curves: [],
  },
  {
    id: "accuracy",
    title: "Held-out accuracy",
    hint: "Share of held-out prompts answered correctly",
    curves: one("accuracy"),
    kind: "evals",
  },
  { id: "loss", title: "Loss", curves: one("loss") },
  {
    id: "kl",
    title: "KL",
    curves: labelled({ policy_kl: "to the policy that sampled", kl: "to the reference, if there is one" }),
  },
  { id: "entropy", title: "Entropy", curves: one("entropy") },
  { id: "clip", title: "Clip fraction", curves: one("clip_fraction", "clipped") },
  {
    id: "staleness",
    title: "Staleness",
    curves: labelled({ staleness_mean: "mean", staleness_max: "largest", token_lag_p95: "tokens, 95%" }),
  },
  {
    id: "time",
    title: "Step time",
    hint: "Seconds from the end of one step to the end of the next, by phase",
    curves: [...PHASES, OTHER, ...PARTS, { name: WHOLE, label: "whole" }],
    kind: "phases",
  },
  {
    id: "speed",
    title: "Tokens a second",
    curves: labelled({ trained_tokens_per_second: "trained", generated_tokens_per_second: "generated" }),
  },
  {
    id: "speed-gpu",
    title: "Tokens a second, one GPU",
    hint: "The same over the GPUs of the trainer, or of the replicas",
    curves: labelled({
      trained_tokens_per_second_per_gpu: "trained",
      generated_tokens_per_second_per_gpu: "generated",
    }),
  },
  { id: "mfu", title: "MFU", curves: labelled({ mfu: "whole step", mfu_train: "training" }) },
  {
    id: "memory",
    title: "Peak memory",
    curves: labelled({
      peak_device_memory_bytes: "GPU",
      peak_device_memory_reserved_bytes: "GPU, reserved",
      peak_host_memory_bytes: "host",
    }),
  },
  {
    id: "length",
    title: "Completion length",
    hint: "Tokens of a completion; where trained is below arrived, the bound on staleness filters by length",
    curves: labelled({
      completion_length_mean: "trained, mean",
      arrived_length_mean: "arrived, mean",
      trained_length_max: "trained, longest",
      arrived_length_max: "arrived, longest",
    }),
  },
  { id: "stale", title: "Stale tokens", curves: one("stale_tokens_share", "tokens") },
  {
    id: "gap",
    title: "Logprob gap",
    hint: "Trainer against engine on tokens of the trainer's own version, and on the canary of each publication, nats",
    curves: labelled({ logprob_gap_mean: "mean", logprob_gap_max: "largest", canary_gap: "canary" }),
  },
  {
    id: "mismatch",
    title: "Mismatch gap",
    hint: "Trainer against engine on all tokens, stale ones too, nats",
    curves: labelled({ mismatch_gap_mean: "mean", mismatch_gap_max: "largest" }),
  },
];

export const extraChart = (name: string): ChartSpec => ({ id: `m-${name}`, title: name, curves: one(name) });

const COLOURS = 8;

/** The charts with curves for the components among `names`; those beyond the colours are in the dialog. */
export function withComponents(charts: ChartSpec[], names: string[]): ChartSpec[] {
  const components = names.flatMap((name) => componentOf(name) ?? []);
  return charts.map((chart) => {
    const own = components.filter((name) => names.includes(`rewards/${name}/${chart.component}`)).slice(0, COLOURS);
    const curves = own.map((label) => ({ name: `rewards/${label}/${chart.component}`, label }));
    // A single curve has no label in the legend.
    const title = own.length === 1 ? `${chart.title}: ${own[0]}` : chart.title;
    return chart.component ? { ...chart, title, curves } : chart;
  });
}

/** The chart of the evaluations with a curve for each set. */
export function withEvals(charts: ChartSpec[], evals: Evaluation[]): ChartSpec[] {
  const keys = measuresOf(evals).slice(0, COLOURS);
  const [first] = keys;
  if (first === undefined) {
    return charts;
  }
  const curves = keys.map((name) => ({ name, label: setOf(name) || name }));
  const title = evalTitle(first);
  return charts.map((chart) => {
    if (chart.kind !== "evals") {
      return chart;
    }
    return title === chart.title ? { ...chart, curves } : { ...chart, title, curves, hint: REWARD_HINT };
  });
}

/** The chart in sentences. */
export function hintOf({ hint, curves, component, kind }: ChartSpec): string {
  const own = kind === "evals" ? curves.slice(0, 1).filter(({ name }) => name.endsWith("accuracy")) : curves;
  const told = component || kind === "phases" ? [] : own.map(({ name, label }) => ({ label, text: described(name).text }));
  const texts = told.filter(({ text }) => text).map(({ label, text }) => (told.length > 1 ? `${label}: ${text}` : text));
  return [...(hint ? [`${hint}.`] : []), ...texts].join("\n");
}

/** What a metric is called where it has a chart of its own. */
export function titleOf(name: string): string {
  const chart = CHARTS.find(({ curves }) => curves.some((curve) => curve.name === name));
  const curve = chart?.curves.find((one) => one.name === name);
  if (!chart || !curve) {
    return name;
  }
  return chart.curves.length > 1 ? `${chart.title}: ${curve.label}` : chart.title;
}

/** The metrics that a list of charts needs. */
export function namesOf(charts: ChartSpec[]): string[] {
  const names = charts
    .filter((chart) => chart.kind !== "evals")
    .flatMap((chart) => chart.curves.map((curve) => curve.name));
  return [...new Set(names)];
}
