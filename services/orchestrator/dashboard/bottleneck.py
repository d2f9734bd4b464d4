"""Derives from the status which side is the bottleneck, as one line for people. Pure."""

from collections.abc import Mapping

from headrace.wire.api.model import Metrics
from headrace.wire.api.status import Bottleneck, RunProgress, StreamStatus

_PHASE = "phase_seconds_"
_NAMED = 0.1
"""Phases with a smaller share of the trainer's time are not mentioned."""
SIDES = ("trainer", "rollout", "reward", "none")
_MUCH = 0.25
"""A side that waits for more than this share of its time is starved."""
_WORKING = ("serving", "updating", "sleeping")


def bottleneck(status: RunProgress, *, paused: bool) -> Bottleneck:
    """Decides by the trainer's wait for batches and the replicas' wait for credit; `paused`: by an operator."""
    if status.state != "running":
        return _said("none", "" if status.state == "starting" else f"The run is {status.state}.")
    if paused:
        return _said("none", "The run is paused: no new prompt is issued.")
    if status.trainer.state == "absent":
        return _said("trainer", "No trainer has registered: start it.")
    replicas = [replica for replica in status.replicas if replica.state in _WORKING]
    if not replicas:
        return _said("rollout", "No rollout replica serves: start one, or wait until one has its weights.")
    trainer = status.trainer.waiting_share
    if f"{_PHASE}turn" in status.trainer.metrics:
        # Neither is limited by the other's speed: each waits for its turn.
        share = _percent(trainer)
        return _said("none", f"Trainer and engines take turns on the GPU: generation has {share} of the time.")
    rollout = sum(replica.waiting_share for replica in replicas) / len(replicas)
    dials = f"the trainer waits {_percent(trainer)} of its time for batches, replicas {_percent(rollout)} for credit"
    unscored, num_open = _unscored(status.streams), status.credit.issued
    if trainer > _MUCH and num_open and unscored > num_open / 2:
        return _said(
            "reward", f"Reward is behind: {unscored} of {num_open} open groups wait for scores; {dials}. Scale reward."
        )
    if trainer > _MUCH and trainer >= rollout:
        count = len(replicas)
        return _said("rollout", f"Rollout is behind: {dials}. Scale rollout beyond {count} replica{'s' * (count > 1)}.")
    if rollout > _MUCH:
        spent = _spent(status.trainer.metrics)
        return _said("trainer", f"The trainer is behind: {dials}.{spent} Scale the trainer, or free rollout replicas.")
    return _said("none", f"Both sides keep up: {dials}.")


def _unscored(streams: Mapping[str, StreamStatus]) -> int:
    """Generated groups that wait for the reward service or are being scored."""
    stream = streams.get("rollouts")
    return stream.pending + stream.undelivered if stream else 0


def _spent(metrics: Metrics) -> str:
    """The trainer's largest phases in its last step, without the wait; empty if it has reported none."""
    seconds = {key.removeprefix(_PHASE): float(value) for key, value in metrics.items() if key.startswith(_PHASE)}
    seconds.pop("wait", None)
    whole = sum(seconds.values())
    seconds.pop("other", None)
    largest = sorted(seconds, key=lambda name: -seconds[name])[:2]
    shares = [
        f"{name.replace('_', ' ')} {_percent(seconds[name] / whole)}"
        for name in largest
        if whole > 0 and seconds[name] >= _NAMED * whole
    ]
    return f" Its time goes to {', '.join(shares)}." if shares else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _said(side: str, text: str) -> Bottleneck:
    return Bottleneck(side=side, text=text)
