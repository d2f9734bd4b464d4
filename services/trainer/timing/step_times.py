"""Times of rank 0's steps, from the end of one to the end of the next, for metrics.jsonl."""

from collections.abc import Mapping

from headrace.services.trainer.timing.phases import TRAIN, Phases, joined, keyed

_BETWEEN = ("wait", "checkpoint", "record")
"""Phases before a step, or between two: not part of its `seconds`."""


def step_times(lap: Mapping[str, float], train: Mapping[str, float]) -> dict[str, float]:
    """Times of a step from its lap and, within that, the lap `train` of the optimizer step."""
    total, waited = sum(lap.values()), lap.get("wait", 0.0)
    return {
        "interval_seconds": total,
        "seconds": total - sum(lap.get(name, 0.0) for name in _BETWEEN),
        "train_seconds": lap.get(TRAIN, 0.0),
        "wait_batch_seconds": waited,
        "wait_batch_share": min(waited / max(total, 1e-9), 1.0),
        **keyed(joined(lap, train)),
    }


def replay_times(phases: Phases) -> dict[str, float]:
    """The same for a replayed step, which consists of training only."""
    train = phases.lap()
    return {"seconds": sum(train.values()), **keyed(train)}
