"""The times of rank 0's steps, from the end of one to the end of the next, as metrics.jsonl has them."""

from collections.abc import Mapping
from typing import Any

from services.trainer.phases import TRAIN, Phases, joined, keyed

_BETWEEN = ("wait", "checkpoint", "record")
"""Before a step, or between two: not part of its `seconds`."""


def step_times(lap: Mapping[str, float], train: Mapping[str, float]) -> dict[str, Any]:
    """The numbers of a step whose lap was `lap`, and of it that of the optimizer step `train`."""
    total, waited = sum(lap.values()), lap.get("wait", 0.0)
    return {
        "interval_seconds": total,
        "seconds": total - sum(lap.get(name, 0.0) for name in _BETWEEN),
        "train_seconds": lap.get(TRAIN, 0.0),
        "wait_batch_seconds": waited,
        "wait_batch_share": min(waited / max(total, 1e-9), 1.0),
        **keyed(joined(lap, train)),
    }


def replay_times(phases: Phases) -> dict[str, Any]:
    """The same of a step that is made again: nothing but its training."""
    train = phases.lap()
    return {"seconds": sum(train.values()), **keyed(train)}
