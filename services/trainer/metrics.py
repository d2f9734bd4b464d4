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
from headrace.wire.telemetry.metric_table import METRICS, component_means
from headrace.wire.telemetry.operations import Operation
from headrace.wire.telemetry.reward_components import MOST_NAMES

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
TRAINED_TOKENS = Counter("headrace_trainer_trained_tokens", "Sampled tokens that were in a step.")
REWARD_COMPONENT = Gauge(
    "headrace_trainer_reward_component",
    "Mean of a component of the reward, of the last step; of a component that it lacks NaN. 32 components at most.",
    ["component"],
)
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
CHECKPOINT_SECONDS = Histogram(
    "headrace_trainer_checkpoint_seconds", "Time to write one checkpoint, beside the steps.", buckets=_LONG
)
CHECKPOINTS_WAITED = Counter(
    "headrace_trainer_checkpoints_waited", "Checkpoints that fell due while the one before was still being written."
)
CHECKPOINT_TIME = Gauge(
    "headrace_trainer_checkpoint_last_success_timestamp_seconds",
    "Time of the newest complete checkpoint; 0 = none.",
)
CHECKPOINT_VERSION = Gauge("headrace_trainer_checkpoint_policy_version", "Version of the newest complete checkpoint.")
CHECKPOINT_EVERY = Gauge(
    "headrace_trainer_checkpoint_interval_steps",
    "Steps between two checkpoints: as configured, or as many as the configured time has had.",
)
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
"""Steps wait while the state is copied, and for the one before if that is still being written."""
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
        key: Gauge(f"headrace_trainer_{key}{metric.gauge}", f"{metric.text} Of the last step.")
        for key, metric in METRICS.items()
        if metric.gauge is not None
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
    means = component_means(numbers)
    # The labels of a process are bounded: users' code names components.
    _components.update([name for name in means if name not in _components][: MOST_NAMES - len(_components)])
    for name in _components:
        REWARD_COMPONENT.labels(name).set(means.get(name, math.nan))


_components: set[str] = set()


def count_phases(line: Mapping[str, Any]) -> None:
    """Adds the phase times of a step, given as a line of metrics.jsonl."""
    for key, seconds in line.items():
        if key.startswith(KEY):
            PHASE_SECONDS.labels(key.removeprefix(KEY)).inc(seconds)


def show_checkpoint(version: int, path: Path) -> None:
    """Sets the gauges of the newest whole checkpoint, just written or found at the start."""
    CHECKPOINT_VERSION.set(version)
    CHECKPOINT_TIME.set(path.stat().st_mtime)
