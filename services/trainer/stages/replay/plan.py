"""Plans a replay: which journaled steps can be trained again, and which of them are requested. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.wire.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Steps `after` + 1 to `last`, beginning with the weights of version `after`."""

    after: int
    last: int


def plan_replay(starts: Collection[int], payloads: Collection[int], *, after: int, last: int) -> ReplayPlan:
    """`starts` are the available versions (0 and the checkpoints), `payloads` the steps whose batch is still there.

    `after` -1 and `last` 0 choose as much as possible. Raises ConfigError naming what can be replayed.
    """
    reaches = {start: end for start in sorted(starts) if (end := _reach(start, payloads)) > start}
    if not reaches:
        raise ConfigError("no step of this run can be replayed: no batch lies in its journal behind a checkpoint")
    words = _in_words(reaches)
    if after < 0:
        fitting = [start for start, end in reaches.items() if end >= last]
        if not fitting:
            raise ConfigError(f"step {last} cannot be replayed: {words}")
        after = fitting[0]
    if after not in starts:
        raise ConfigError(f"there is no checkpoint of step {after} to begin with: {words}")
    if after not in reaches:
        raise ConfigError(f"the batch of step {after + 1} is not in the journal (any more): {words}")
    last = last or reaches[after]
    if not after < last <= reaches[after]:
        raise ConfigError(f"steps {after + 1} to {last} cannot be replayed: {words}")
    return ReplayPlan(after, last)


def _reach(start: int, payloads: Collection[int]) -> int:
    """The last step of the unbroken run of batches after a version."""
    while start + 1 in payloads:
        start += 1
    return start


def _in_words(reaches: dict[int, int]) -> str:
    ranges: Sequence[str] = [
        f"{start + 1} to {end} from {f'checkpoint {start}' if start else 'the model that the run began with'}"
        for start, end in reaches.items()
    ]
    return f"what can be replayed is {'; '.join(ranges)} (older batches go when a checkpoint covers them)"
