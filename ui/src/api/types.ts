// Names for what the orchestrator answers; `npm run types` writes schema.ts from the API's models (wire/api).

import type { components } from "./schema";

type Schemas = components["schemas"];

export type Value = number | null;
/** One line of metrics.jsonl, or one event: a record whose keys depend on the run. */
export type Row = Record<string, unknown>;

export type Status = Schemas["RunStatus"];
export type Trainer = Schemas["TrainerStatus"];
export type Replica = Schemas["ReplicaStatus"];
export type EnvironmentWorker = Schemas["EnvironmentStatus"];
export type EpisodeWait = Schemas["EpisodeWait"];
export type Evaluation = Schemas["EvaluationRow"];
export type StreamStats = Schemas["QueueRow"];

export type Points = Schemas["CurvePoints"];
export type Series = Schemas["MetricSeries"];
export type MovedRow = Schemas["MovedRow"];
export type StepDifferences = Schemas["StepDifferences"];
export type LogLine = Schemas["LogRecord"];

export type RolloutRow = Schemas["RolloutRow"];
export type RolloutPage = Schemas["RolloutPage"];
export type Token = Schemas["TokenView"];
export type Rollout = Schemas["RolloutView"];
export type Group = Schemas["GroupView"];
export type Episode = Schemas["EpisodeView"];
export type Message = Schemas["MessageView"];
export type Segment = Schemas["SegmentView"];

export type Phase = Schemas["PhaseSpan"];
export type Member = Schemas["PublicationMember"];
export type Publication = Schemas["PublicationTimeline"];
export type Fleet = Schemas["Fleet"];

export type Queues = Schemas["QueueList"];
export type DeadLetter = Schemas["DeadLetterRow"];
export type DeadPage = Schemas["DeadLetterPage"];

export type AnnotatedSide = Schemas["AnnotatedSide"];
export type AnnotationTurn = Schemas["AnnotationTurn"];

export type ErrorReply = Schemas["ErrorReply"];
export type RunEntry = Schemas["RunRow"];
export type ComparedRun = Schemas["ComparedRun"];
export type ConfigKey = Schemas["ConfigKey"];
export type Comparison = Schemas["RunComparison"];
