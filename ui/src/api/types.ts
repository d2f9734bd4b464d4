// What the orchestrator answers. Times are unix seconds unless told otherwise.

export type Value = number | null;
export type Row = Record<string, unknown>;

export interface Replica {
  id: string;
  state: string;
  version: string;
  in_flight_rollouts: number;
  waiting_share: number;
  waiting_for: string;
  tokens_per_second: number;
  publication: string;
  engine: string;
  address?: string;
  route?: string;
  route_reason?: string;
  proof?: string;
  proof_note?: string;
}

export interface Evaluation {
  version: number;
  accuracy: Value;
  prompts: number;
  missing: number;
  t?: number;
}

export interface Trainer {
  state: string;
  waiting_for: string;
  waiting_share: Value;
  metrics: Record<string, number>;
}

export interface StreamStats {
  length: number;
  pending: number;
  oldest_pending_seconds: Value;
}

export interface Status {
  now: number;
  state: string;
  reason: string;
  step: number;
  max_steps: number;
  version: number;
  incarnation: number;
  evaluating: string;
  waiting_for: string;
  credit: { issued: number; limit: number };
  groups: { issued: number; trained: number; open: number; dropped: Record<string, number> };
  trainer: Trainer;
  replicas: Replica[];
  streams: Record<string, StreamStats>;
  publication: { version: string; phase: string; waiting_for: string; seconds: number; deadline_s: number } | null;
  run: { id: string; run_dir: string; name: string; began: Value };
  operator: { paused: boolean; stopping: boolean; checkpoint_asked: boolean; draining: string[] } | null;
  bottleneck: { side: "trainer" | "rollout" | "reward" | "none"; text: string };
  read_only?: boolean;
}

export interface Points {
  x: number[];
  y: Value[];
}

export interface Series {
  last: number;
  names: string[];
  series: Record<string, Points>;
  evals: Evaluation[];
}

export interface RolloutRow {
  step: number;
  group_index: number;
  group_id: string;
  rollout_index: number;
  reward: Value;
  advantage: Value;
  finish_reason: string;
  tokens: number;
  min_version: number;
  max_version: number;
  replica_id: string;
  prompt: string;
  completion: string;
}

export interface RolloutPage {
  total: number;
  rows: RolloutRow[];
  /** The search through texts goes on when it is asked again. */
  partial: boolean;
  /** More files of the run are still to be read. */
  reading: boolean;
  finish_reasons: string[];
  replicas: string[];
  damaged: { step: number; error: string }[];
}

export interface Token {
  id: number;
  text: string | null;
  logprob: Value;
  advantage: Value;
}

export interface Rollout {
  rollout_index: number;
  completion: string;
  reward: Value;
  advantage: Value;
  components: Record<string, Value>;
  reason: string;
  scorers: Record<string, string>;
  finish_reason: string;
  num_tokens: number;
  tokens: Token[];
  spans: { start: number; end: number; version: string }[];
  replica_id: string;
}

export interface Group {
  step: number;
  group_id: string;
  prompt: string;
  trace_id: string;
  rollouts: Rollout[];
}

export interface Phase {
  phase: string;
  from_s: number;
  to_s: number;
}

export interface Member {
  replica_id: string;
  route: string;
  route_reason?: string;
  committed: boolean;
  reason: string;
  proof?: string;
  proof_note?: string;
}

export interface Publication {
  id: string | number;
  version: string | number;
  incarnation: number;
  began: number;
  seconds: number;
  ended?: boolean;
  phases: Phase[];
  members: Member[];
}

export interface Fleet {
  replicas: Replica[];
  trainer: Trainer;
  publications: Publication[];
}

export interface Queues {
  streams: ({ name: string } & StreamStats)[];
  dead: number;
}

export interface DeadLetter {
  id: string;
  t: number;
  group_id: string;
  group_index: number | null;
  attempt: number;
  purpose: string;
  reason: string;
  error: string;
  bytes: number;
  prompt: string;
  requeued: boolean;
}

export interface DeadPage {
  total: number;
  rows: DeadLetter[];
}

export interface LogLine extends Row {
  t: number;
  event: string;
}

export interface RunEntry {
  name: string;
  id: string;
  state: string;
  steps: number;
  reward_mean: Value;
  accuracy: Value;
  began: Value;
  current: boolean;
}

export interface ComparedRun {
  name: string;
  series: Record<string, Points>;
  evals: Evaluation[];
}

export interface ConfigKey {
  key: string;
  values: unknown[];
  differs: boolean;
}

export interface Comparison {
  runs: ComparedRun[];
  config: ConfigKey[];
}
