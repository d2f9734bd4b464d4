// The charts of the Run page. Further metrics are picked by name and get a chart each.

import { bytes, num, percent } from "../format";
import { OTHER, PARTS, PHASES, WHOLE } from "./phases";

export interface Curve {
  name: string;
  label: string;
}

export interface ChartSpec {
  id: string;
  title: string;
  hint: string;
  curves: Curve[];
  kind?: "lines" | "phases" | "evals";
  format?: (value: number | null) => string;
}

const share = (value: number | null) => percent(value, 1);
const seconds = (value: number | null) => (value === null ? num(value) : `${num(value)} s`);
const size = (value: number | null) => (value === null ? num(value) : bytes(value));
const one = (name: string, label = name) => [{ name, label }];

export const CHARTS: ChartSpec[] = [
  { id: "reward", title: "Reward", hint: "Mean of a batch", curves: one("reward_mean", "reward") },
  {
    id: "accuracy",
    title: "Held-out accuracy",
    hint: "Share of held-out prompts answered correctly",
    curves: one("accuracy"),
    kind: "evals",
    format: share,
  },
  { id: "loss", title: "Loss", hint: "Policy loss of a step", curves: one("loss") },
  { id: "kl", title: "KL", hint: "Divergence from the policy that sampled", curves: one("kl") },
  { id: "entropy", title: "Entropy", hint: "Nats per token", curves: one("entropy") },
  { id: "clip", title: "Clip fraction", hint: "Share of tokens clipped", curves: one("clip_fraction", "clipped"), format: share },
  {
    id: "staleness",
    title: "Staleness",
    hint: "Versions behind, at batch time",
    curves: [
      { name: "staleness_mean", label: "mean" },
      { name: "staleness_max", label: "most" },
    ],
  },
  {
    id: "time",
    title: "Step time",
    hint: "Seconds from the end of one step to the end of the next, by phase",
    curves: [...PHASES, OTHER, ...PARTS, { name: WHOLE, label: "whole" }],
    kind: "phases",
    format: seconds,
  },
  {
    id: "speed",
    title: "Tokens a second",
    hint: "Tokens that entered the update, and tokens of all groups that were consumed for it, over the time from step to step",
    curves: [
      { name: "trained_tokens_per_second", label: "trained" },
      { name: "generated_tokens_per_second", label: "generated" },
    ],
  },
  {
    id: "speed-gpu",
    title: "Tokens a second, one GPU",
    hint: "The same over the GPUs of the trainer, or of the replicas",
    curves: [
      { name: "trained_tokens_per_second_per_gpu", label: "trained" },
      { name: "generated_tokens_per_second_per_gpu", label: "generated" },
    ],
  },
  {
    id: "mfu",
    title: "MFU",
    hint: "Model FLOPs of the update as a share of what the trainer's GPUs could do in the time",
    curves: [
      { name: "mfu", label: "whole step" },
      { name: "mfu_train", label: "training" },
    ],
    format: share,
  },
  {
    id: "memory",
    title: "Peak memory",
    hint: "Of the rank that took most, since the step before",
    curves: [
      { name: "peak_device_memory_bytes", label: "GPU" },
      { name: "peak_device_memory_reserved_bytes", label: "GPU, reserved" },
      { name: "peak_host_memory_bytes", label: "host" },
    ],
    format: size,
  },
  {
    id: "length",
    title: "Completion length",
    hint: "Tokens of a completion; where trained is below arrived, the bound on staleness filters by length",
    curves: [
      { name: "completion_length_mean", label: "trained, mean" },
      { name: "arrived_length_mean", label: "arrived, mean" },
      { name: "trained_length_max", label: "trained, longest" },
      { name: "arrived_length_max", label: "arrived, longest" },
    ],
  },
  {
    id: "stale",
    title: "Stale tokens",
    hint: "Share of the tokens that arrived, dropped or masked by run.stale",
    curves: one("stale_tokens_share", "tokens"),
    format: share,
  },
  {
    id: "gap",
    title: "Logprob gap",
    hint: "Trainer against engine on tokens of the trainer's own version, and on the canary of each publication, nats",
    curves: [
      { name: "logprob_gap_mean", label: "mean" },
      { name: "logprob_gap_max", label: "most" },
      { name: "canary_gap", label: "canary" },
    ],
  },
  {
    id: "mismatch",
    title: "Mismatch gap",
    hint: "Trainer against engine on all tokens, stale ones too, nats",
    curves: [
      { name: "mismatch_gap_mean", label: "mean" },
      { name: "mismatch_gap_max", label: "most" },
    ],
  },
];

export const extraChart = (name: string): ChartSpec => ({ id: `m-${name}`, title: name, hint: "", curves: one(name) });

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
