"""Every metric the trainer emits, declared once."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from headrace.services.trainer.throughput import peak_keys
from headrace.services.trainer.timing.phases import KEY
from headrace.wire.contracts import DropReason
from headrace.wire.rundir import metrics as run_metrics
from headrace.wire.telemetry.operations import Operation

_LONG = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)

STEPS = Counter("headrace_trainer_steps", "Optimizer steps of this process, including replayed ones.")
STEPS_SKIPPED = Counter(
    "headrace_trainer_steps_skipped", "Steps skipped because the gradient was not finite; the weights did not change."
)
STEP_SECONDS = Histogram(
    "headrace_trainer_step_seconds",
    "Parts of a step: wait (for its batch), train, hand_over (journal, snapshot, the previous publication).",
    ["phase"],
    buckets=_LONG,
)
PHASE_SECONDS = Counter(
    "headrace_trainer_phase_seconds",
    "Time of rank 0 by phase (see the dashboard's page); the phases cover the time from step end to step end.",
    ["phase"],
)
WAITING_SHARE = Gauge("headrace_trainer_waiting_ratio", "Share of the last step's time without a complete batch.")
TRAINED_TOKENS = Counter("headrace_trainer_trained_tokens", "Completion tokens that were in a step.")
TRAINED_GROUPS = Counter("headrace_trainer_trained_groups", "Groups that were in a step.")
GROUPS_DROPPED = Counter("headrace_trainer_groups_dropped", "Groups that will never be trained.", ["reason"])
DUPLICATES = Counter("headrace_trainer_duplicate_groups", "Repeated entries of groups that had already arrived.")
GROUPS_READY = Gauge("headrace_trainer_groups_ready", "Groups that wait for their batch.")
STALENESS = Histogram(
    "headrace_trainer_staleness_versions",
    "Policy versions that the oldest token of a trained group was behind.",
    buckets=(0, 1, 2, 3, 4, 6, 8, 16),
)
POLICY_VERSION = Gauge("headrace_trainer_policy_version", "Version of the weights.")
INCARNATION = Gauge("headrace_trainer_incarnation", "Incarnation of this process.")
CHECKPOINT_SECONDS = Histogram("headrace_trainer_checkpoint_seconds", "Time to write one checkpoint.", buckets=_LONG)
CHECKPOINT_TIME = Gauge(
    "headrace_trainer_checkpoint_last_success_timestamp_seconds",
    "Time of the newest complete checkpoint; 0 = none.",
)
CHECKPOINT_VERSION = Gauge("headrace_trainer_checkpoint_policy_version", "Version of the newest complete checkpoint.")
CHECKPOINT_EVERY = Gauge("headrace_trainer_checkpoint_interval_steps", "Configured steps between two checkpoints.")
TURN_SECONDS = Histogram(
    "headrace_trainer_turn_seconds",
    "Turns on a shared GPU: wait (for the engines to sleep), unpark and park (optimizer state from and to the host).",
    ["phase"],
    buckets=_LONG,
)
CHECKPOINT_ROOM = Gauge(
    "headrace_trainer_checkpoint_room_bytes",
    "Free bytes that checkpoints need: those missing of the kept ones, one being written, one spare. 0 = unknown.",
)
STEP_ROOM = Gauge(
    "headrace_trainer_step_room_bytes",
    "Free bytes that the last step needed before its batch was journaled; the run pauses while there are fewer.",
)
RUN_DIR_FREE = Gauge(
    "headrace_trainer_run_dir_free_bytes", "Free bytes on the file system of the run directory, as the trainer sees it."
)
RUN_DIR_SIZE = Gauge("headrace_trainer_run_dir_size_bytes", "Size of that file system.")
OPERATION_ACTIVE = Gauge("headrace_trainer_operation_active", "1 while it is in progress: checkpoint.", ["operation"])
OPERATION_UNTIL = Gauge(
    "headrace_trainer_operation_until_timestamp_seconds",
    "Deadline of the operation in progress, else the end of the last one; 0 = none has begun.",
    ["operation"],
)
CHECKPOINTING = Operation(OPERATION_ACTIVE.labels("checkpoint").set, OPERATION_UNTIL.labels("checkpoint").set)
"""Steps wait for checkpoints, which are written between them."""
SNAPSHOT_SECONDS = Histogram("headrace_trainer_snapshot_seconds", "Time to copy the weights that a publication sends.")
SENT_BYTES = Counter(
    "headrace_trainer_weights_sent_bytes", "Weights sent over collective groups or written for the disk.", ["route"]
)
SEND_SECONDS = Histogram(
    "headrace_trainer_weights_send_seconds", "One transfer, by route and outcome: done, failed.",
    ["route", "outcome"],
)  # fmt: skip
ABANDONED_JOINS = Counter(
    "headrace_trainer_abandoned_joins",
    "Collective groups whose join or first broadcast hung past its deadline; their threads remain.",
)
ABANDONED_THREADS = Gauge("headrace_trainer_abandoned_join_threads", "Abandoned threads that still hang.")
PUBLICATION_SECONDS = Histogram(
    "headrace_trainer_publication_seconds", "One publication as the trainer sees it.", buckets=_LONG
)
ROLLOUTS_UNWRITTEN = Counter(
    "headrace_trainer_rollouts_unwritten_steps", "Steps whose rollouts could not be written to disk (a full disk)."
)
TRACKER_ERRORS = Counter("headrace_trainer_tracker_errors", "Calls of a tracker that failed.", ["tracker"])
TRACKER_DROPPED = Counter(
    "headrace_trainer_tracker_dropped_lines",
    "Steps and evaluations that a tracker of this process did not record.",
    ["tracker"],
)

TOKENS_PER_SECOND = Gauge(
    "headrace_trainer_tokens_per_second",
    "Tokens a second from the end of the previous step to the end of the last one, by kind: trained, generated.",
    ["kind"],
)
TOKENS_PER_SECOND_PER_GPU = Gauge(
    "headrace_trainer_tokens_per_second_per_gpu",
    "The same divided by the GPUs of the trainer (trained) or of the replicas (generated); absent on CPUs.",
    ["kind"],
)
MFU = Gauge(
    "headrace_trainer_mfu_ratio",
    "Model FLOPs of the last step over its GPUs' peak, by phase: step (including waits), train. Absent without a peak.",
    ["phase"],
)
PEAK_MEMORY = Gauge(
    "headrace_trainer_peak_memory_bytes",
    "Peak memory of a rank since the previous step, by kind: device, device_reserved (absent on CPUs), host.",
    ["kind"],
)
LABELLED_OF_STEP = MappingProxyType(
    {
        run_metrics.TRAINED: (TOKENS_PER_SECOND, "trained"),
        run_metrics.GENERATED: (TOKENS_PER_SECOND, "generated"),
        run_metrics.TRAINED + run_metrics.PER_GPU: (TOKENS_PER_SECOND_PER_GPU, "trained"),
        run_metrics.GENERATED + run_metrics.PER_GPU: (TOKENS_PER_SECOND_PER_GPU, "generated"),
        run_metrics.MFU: (MFU, "step"),
        run_metrics.MFU_TRAIN: (MFU, "train"),
        peak_keys.DEVICE: (PEAK_MEMORY, "device"),
        peak_keys.RESERVED: (PEAK_MEMORY, "device_reserved"),
        peak_keys.HOST: (PEAK_MEMORY, "host"),
    }
)
"""Key of metrics.jsonl -> its gauge and label. A series begins with its first number: a missing one is not 0."""
OF_STEP = MappingProxyType(
    {
        key: Gauge(f"headrace_trainer_{key}{unit}", f"{text} Of the last step.")
        for key, (unit, text) in {
            "loss": ("", "Loss that the optimizer minimizes."),
            "grad_norm": ("", "Norm of the gradient before clipping."),
            "learning_rate": ("", "Learning rate of the policy."),
            "reward_mean": ("", "Mean reward of the batch."),
            "reward_std": ("", "Standard deviation of the batch's rewards."),
            "kl": ("_nats", "Divergence from the reference (or from the policy that sampled), per token."),
            "entropy": ("_nats", "Mean entropy of the policy at the trained tokens."),
            "clip_fraction": ("", "Share of tokens whose gradient was clipped away."),
            "kept_share": ("", "Share of the rollouts that remain in the loss after masking."),
            "abstained": ("_rollouts", "Rollouts of the batch without a score, which are not trained."),
            "completion_length_mean": ("_tokens", "Mean length of the completions."),
            "reward_no_answer_share": ("", "Share of completions in which a scorer found no answer where it looks."),
            "truncated_share": ("", "Share of completions that were cut at the length limit."),
            "logprob_gap_max": ("_nats", "Largest |trainer - engine| logprob of new tokens."),
            "logprob_gap_mean": ("_nats", "Mean |trainer - engine| logprob of new tokens."),
            "canary_gap": ("_nats", "Largest |trainer - engine| logprob of the canary of the weights before the step."),
            "mismatch_kl_k3": ("_nats", "Estimated KL(engine || trainer) per token, staleness included."),
            "mismatch_ess": ("_ratio", "Effective share of the tokens under importance weights."),
            "staleness_mean": ("_versions", "Mean versions that groups were behind."),
            "staleness_max": ("_versions", "Most versions that a trained token was behind."),
            "groups_stale": (
                "",
                "Groups dropped as stale, or with a masked token, while the batch was collected.",
            ),
            "stale_tokens_share": (
                "",
                "Share of arrived tokens that were dropped or masked as stale.",
            ),
            "trained_length_mean": ("_tokens", "Mean number of trained tokens of a completion."),
            "trained_length_p95": ("_tokens", "95th percentile of the length."),
            "trained_length_max": ("_tokens", "Largest length."),
            "arrived_length_mean": ("_tokens", "Mean length of all completions that arrived."),
            "arrived_length_p95": ("_tokens", "95th percentile of the length."),
            "arrived_length_max": ("_tokens", "Largest length."),
            "groups_discarded": ("", "Groups discarded as uninformative while the batch was collected."),
            "value_loss": ("", "Loss of the critic."),
            "explained_variance": ("_ratio", "Share of the returns' variance that the critic explains."),
            "critic_grad_norm": ("", "Norm of the critic's gradient before clipping."),
        }.items()
    }
)
"""Key of metrics.jsonl -> its gauge, of the same stem: what dashboards and alerts need. Others: the file alone."""

for _reason in DropReason:
    GROUPS_DROPPED.labels(str(_reason))
for _phase in ("wait", "train", "hand_over"):
    STEP_SECONDS.labels(_phase)
for _route in ("nccl", "gloo", "disk"):
    SENT_BYTES.labels(_route)
    for _outcome in ("done", "failed"):
        SEND_SECONDS.labels(_route, _outcome)


def show_step(numbers: Mapping[str, Any]) -> None:
    """Sets the gauges of a step. One without a number is NaN, of a labelled one the series keeps its value."""
    for key, gauge in OF_STEP.items():
        gauge.set(numbers.get(key, math.nan))
    for key, (gauge, label) in LABELLED_OF_STEP.items():
        if key in numbers:
            gauge.labels(label).set(numbers[key])


def count_phases(line: Mapping[str, Any]) -> None:
    """Adds the phase times of a step, given as a line of metrics.jsonl."""
    for key, seconds in line.items():
        if key.startswith(KEY):
            PHASE_SECONDS.labels(key.removeprefix(KEY)).inc(seconds)


def show_checkpoint(version: int, path: Path) -> None:
    """Sets the gauges of the newest whole checkpoint, just written or found at the start."""
    CHECKPOINT_VERSION.set(version)
    CHECKPOINT_TIME.set(path.stat().st_mtime)
