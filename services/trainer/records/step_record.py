"""The record of a step, for people and for Prometheus: a line, the rollouts, gauges, the log."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.journaled_ledger import RecordedStep
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UntrainedGroups, generated_tokens, oldest_trained, toll
from headrace.services.trainer.records.rollout_folder import RolloutFolder
from headrace.services.trainer.step.batch import batch_metrics
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.process import failpoints
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import MetricsLog
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.telemetry.metric_table import NO_ANSWER_SHARE, STALE_SHARE

_SAY_AGAIN_STEPS = 20
_FIRST_STEPS = 5
_SHOWN = ("loss", "reward_mean", "grad_norm", "logprob_gap_max", "canary_gap", "staleness_max", "seconds", "replayed")
log = get_logger("trainer.rl")


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """What is recorded of a step."""

    step: int
    batch: Sequence[ReadyGroup]
    outcome: StepOutcome
    numbers: Mapping[str, object]
    """Those of its clock, and `replayed`."""
    on_the_way: UntrainedGroups | None = None
    """The groups dropped before it; None for a replayed step, as the journal does not record their lengths."""


class StepRecord:
    """Writes the records of steps into the run directory."""

    def __init__(self, run_dir: Path, *, keep_rollouts_mib: int, most_lag: int, source_column: str = "") -> None:
        """Tokens of a lag above `most_lag` are not trained; `source_column` of a row names its data source."""
        self._rollouts = RolloutFolder(RunPaths(run_dir).rollouts, keep_mib=keep_rollouts_mib, most_lag=most_lag)
        self._most_lag, self._source_column = most_lag, source_column
        self._said_stale_at = -_SAY_AGAIN_STEPS
        self._lines = MetricsLog(RunPaths(run_dir).metrics)

    def line(self, trained: TrainedStep) -> dict[str, Any]:
        """Collects all numbers of a step."""
        step, outcome, on_the_way = trained.step, trained.outcome, trained.on_the_way
        groups, bound = [group.scored for group in trained.batch], self._most_lag
        of_batch = batch_metrics(
            groups, version=step - 1, most_lag=bound, shaping=outcome.shaping, source_column=self._source_column
        )
        if on_the_way is not None:
            of_batch |= toll(groups, on_the_way.stale, version=step - 1, bound=bound)
            of_batch["groups_discarded"] = on_the_way.uninformative
            of_batch["generated_tokens"] = on_the_way.spent + sum(map(generated_tokens, groups))
        return {"t": round(time.time(), 3), **trained.numbers, **outcome.metrics, **outcome.peaks, **of_batch}

    def write(self, trained: TrainedStep, line: Mapping[str, Any]) -> RecordedStep:
        """Writes the rollouts and `line`, sets the metrics, logs; returns the digest of the rollouts."""
        step, batch = trained.step, trained.batch
        # The rollouts first: who reads a step's line finds its file.
        rollouts = self._rollouts.add(step, batch, trained.outcome, replayed=line["replayed"])
        failpoints.reach("step.rollouts_written")
        self._lines.append(step, line)
        self._show(step, batch, line)
        return RecordedStep(step=step, rollouts=rollouts, rollouts_from=self._rollouts.oldest)

    def sync(self) -> None:
        """Makes all lines durable. Raises OSError."""
        self._lines.sync()

    def _show(self, step: int, batch: Sequence[ReadyGroup], line: Mapping[str, Any]) -> None:
        if not line["replayed"]:
            metrics.STEP_SECONDS.labels("wait").observe(line["wait_batch_seconds"])
            metrics.STEP_SECONDS.labels("hand_over").observe(line["seconds"] - line["train_seconds"])
            metrics.WAITING_SHARE.set(line["wait_batch_share"])
        metrics.STEP_SECONDS.labels("train").observe(line.get("train_seconds", line["seconds"]))
        metrics.count_phases(line)
        metrics.TRAINED_TOKENS.inc(line["completion_tokens"])
        metrics.TRAINED_GROUPS.inc(line["groups"])
        for group in batch:
            lag = oldest_trained(group.scored, step - 1, self._most_lag)
            if lag is not None:
                metrics.STALENESS.observe(lag)
        metrics.show_step(line)
        self._warn_of_stale(step, line)
        if step <= _FIRST_STEPS and line["reward_no_answer_share"] > NO_ANSWER_SHARE:
            log.warning(
                "no_answers",
                step=step,
                share=round(line["reward_no_answer_share"], 3),
                effect="the policy does not write answers as the scorer reads them: such rollouts score 0",
                way_out="ask for the form in the prompt (docs/rewards.md#answers), or set reward.answer",
            )
        log.info("step", step=step, **{key: line[key] for key in _SHOWN if key in line})

    def _warn_of_stale(self, step: int, line: Mapping[str, Any]) -> None:
        share = line.get("stale_tokens_share", 0.0)
        if share <= STALE_SHARE or step < self._said_stale_at + _SAY_AGAIN_STEPS:
            return
        self._said_stale_at = step
        log.warning(
            "stale_tokens",
            step=step,
            share=round(share, 3),
            groups=line["groups_stale"],
            trained_length_mean=line["trained_length_mean"],
            arrived_length_mean=line["arrived_length_mean"],
            effect="long answers are trained less than they are sampled",
            way_out='run.stale = "wait" or "late" in a new run, a larger run.max_staleness, or more rollout replicas',
        )
