"""What a step was, for people and for Prometheus: a line, the rollouts, gauges, the log."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.trainer import metrics
from services.trainer.assembly import batch_metrics
from services.trainer.ledger import ReadyGroup
from services.trainer.rollout_log import MetricsLog
from services.trainer.rollout_shelf import RolloutShelf
from services.trainer.step import StepOutcome
from wire.telemetry import get_logger

_SHOWN = ("loss", "reward_mean", "grad_norm", "logprob_gap_max", "staleness_max", "seconds", "replayed")
log = get_logger("trainer.rl")


class StepRecord:
    """Writes into the run directory."""

    def __init__(self, run_dir: Path, *, keep_rollouts_mib: int) -> None:
        self._rollouts = RolloutShelf(run_dir / "rollouts", keep_mib=keep_rollouts_mib)
        self._lines = MetricsLog(run_dir / "metrics.jsonl")

    def line(
        self, step: int, batch: Sequence[ReadyGroup], outcome: StepOutcome, numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        """All numbers of a step: `numbers` are those of its clock."""
        of_batch = batch_metrics([group.scored for group in batch], version=step - 1)
        return {"t": round(time.time(), 3), **numbers, **outcome.metrics, **of_batch}

    def tell(self, step: int, batch: Sequence[ReadyGroup], outcome: StepOutcome, line: Mapping[str, Any]) -> None:
        """Writes `line` and the rollouts, sets the metrics, logs."""
        self._lines.append(step, line)
        self._rollouts.add(step, batch, outcome.advantages, outcome.token_advantages)
        if not line["replayed"]:
            metrics.STEP_SECONDS.labels("wait").observe(line["wait_batch_seconds"])
            metrics.STEP_SECONDS.labels("hand_over").observe(line["seconds"] - line["train_seconds"])
            metrics.WAITING_SHARE.set(line["wait_batch_share"])
        metrics.STEP_SECONDS.labels("train").observe(line.get("train_seconds", line["seconds"]))
        metrics.count_phases(line)
        metrics.TRAINED_TOKENS.inc(line["completion_tokens"])
        metrics.TRAINED_GROUPS.inc(line["groups"])
        for group in batch:
            metrics.STALENESS.observe(step - 1 - group.min_version)
        metrics.show_step(line)
        log.info("step", step=step, **{key: line[key] for key in _SHOWN})
