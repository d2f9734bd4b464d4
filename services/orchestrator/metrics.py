"""Every metric the orchestrator emits."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from headrace.wire.rundir.jsonl import number_of
from headrace.wire.telemetry.operations import Operation

GROUPS_ISSUED = Counter(
    "headrace_orchestrator_groups_issued", "Groups put on the prompts stream: new, again (lost), eval.", ["kind"]
)
GROUPS_ENDED = Counter(
    "headrace_orchestrator_groups_ended", "Groups by fate: trained, or the reason of the drop.", ["fate"]
)
GROUPS_OPEN = Gauge("headrace_orchestrator_groups_open", "Groups issued and neither trained nor dropped.")
CREDIT_LIMIT = Gauge("headrace_orchestrator_credit_limit_groups", "Most groups that may be open now.")
MAX_STALENESS = Gauge(
    "headrace_orchestrator_max_staleness_versions", "Versions that a rollout may be behind its batch."
)
MAX_STEPS = Gauge("headrace_orchestrator_max_steps", "Steps after which the run is finished.")
RUN_PHASE = Gauge(
    "headrace_orchestrator_run_phase",
    "1 for the current phase of the run, 0 for the others: starting, running, finished, stopped, failed.",
    ["phase"],
)
PAUSED = Gauge("headrace_orchestrator_paused", "1 while an operator has paused new prompts.")
REPLICAS = Gauge("headrace_orchestrator_replicas", "Rollout replicas with a live lease.", ["state"])
REPLICAS_LOST = Counter("headrace_orchestrator_replicas_lost", "Leases that expired without deregistration.")
REPLICAS_DISOWNED = Counter(
    "headrace_orchestrator_replicas_disowned", "Replicas quarantined for weights that were never published."
)
POLICY_VERSION = Gauge("headrace_orchestrator_policy_version", "Steps done by the trainer.")
INCARNATION = Gauge("headrace_orchestrator_incarnation", "Incarnation of the trainer.")
LAST_STEP = Gauge(
    "headrace_orchestrator_last_step_timestamp_seconds",
    "Time of the last reported step; before the first, the run's start; after a pause, its end.",
)
STEP_INTERVAL = Histogram(
    "headrace_orchestrator_step_interval_seconds",
    "From the end of one step, or of a pause, to the end of the next step.",
    buckets=(0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
)
OPERATION_ACTIVE = Gauge(
    "headrace_orchestrator_operation_active", "1 while it is in progress: evaluation.", ["operation"]
)
OPERATION_UNTIL = Gauge(
    "headrace_orchestrator_operation_until_timestamp_seconds",
    "Deadline of the operation in progress, else the end of the last one; 0 = none has begun.",
    ["operation"],
)
EVALUATING = Operation(OPERATION_ACTIVE.labels("evaluation").set, OPERATION_UNTIL.labels("evaluation").set)
"""Steps wait for the evaluation: the evaluated version must not be replaced meanwhile."""
PUBLICATION_SECONDS = Histogram(
    "headrace_orchestrator_publication_phase_seconds",
    "One phase of a publication (prepare, transfer, verify, commit): done by all its replicas, or missed by some.",
    ["phase", "outcome"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250),
)
PUBLICATION_OUTCOMES = Counter(
    "headrace_orchestrator_publication_outcomes",
    "Replicas by outcome of a publication: committed, or the phase that they missed.",
    ["outcome"],
)
EVAL_RESULT = Gauge(
    "headrace_orchestrator_eval_result",
    "Last result of an evaluation set: accuracy, pass_at_k, avg_at_k (shares of 1), reward_mean.",
    ["set", "measure"],
)
EVAL_VERSION = Gauge("headrace_orchestrator_eval_policy_version", "Policy version of the last evaluation.")
STREAM_LENGTH = Gauge("headrace_orchestrator_stream_entries", "Entries on a stream.", ["stream"])
STREAM_PENDING = Gauge("headrace_orchestrator_stream_pending_entries", "Entries taken and not acked.", ["stream"])
STREAM_LAG = Gauge("headrace_orchestrator_stream_lag_entries", "Entries that no consumer has taken yet.", ["stream"])
STREAM_OLDEST = Gauge(
    "headrace_orchestrator_stream_oldest_pending_seconds",
    "Time since a consumer last renewed its claim on the oldest pending entry.",
    ["stream"],
)
BROKER_USED = Gauge("headrace_orchestrator_broker_used_bytes", "Memory used by the broker's data (`used_memory`).")
BROKER_LIMIT = Gauge(
    "headrace_orchestrator_broker_limit_bytes",
    "The broker's `maxmemory`; without one, the memory of its machine (a container may have less). 0 = unknown.",
)
BROKER_CERTIFICATE = Gauge(
    "headrace_orchestrator_broker_certificate_expires_timestamp_seconds",
    "When the certificate that the broker shows to new connections expires, as Unix time; 0 without TLS.",
)
RUN_DIR_FREE = Gauge(
    "headrace_orchestrator_run_dir_free_bytes",
    "Free bytes on the file system of the run directory, as the orchestrator sees it.",
)
RUN_DIR_SIZE = Gauge("headrace_orchestrator_run_dir_size_bytes", "Size of that file system.")
ANNOTATION_VOTES = Counter("headrace_orchestrator_annotation_votes", "Votes of annotators on pairs.", ["choice"])

for _kind in ("new", "again", "eval"):
    GROUPS_ISSUED.labels(_kind)
for _phase in ("prepare", "transfer", "verify", "commit"):
    PUBLICATION_OUTCOMES.labels(_phase)
    for _outcome in ("done", "missed"):
        PUBLICATION_SECONDS.labels(_phase, _outcome)
PUBLICATION_OUTCOMES.labels("committed")


def show_evaluation(version: int, sets: Mapping[str, Mapping[str, object]]) -> None:
    """Shows an evaluation; a measure that it lacks keeps its last value."""
    EVAL_VERSION.set(version)
    for name, numbers in sets.items():
        for measure in ("accuracy", "pass_at_k", "avg_at_k", "reward_mean"):
            if (value := number_of(numbers.get(measure))) is not None:
                EVAL_RESULT.labels(name, measure).set(value)
