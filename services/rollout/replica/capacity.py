"""The number of groups a replica takes at a time, and its speed. Pure."""

import math

_AHEAD = 2
"""Sets of groups taken at a time: one being decoded and one waiting, so that freed rows are filled at once."""
_MEMORY = 0.9
"""Decay of the weight of earlier groups with each new one."""
_ROUNDING = 1e-6


def group_limit(
    share: float, *, max_rows: int, group_size: int, batch_groups: int, max_staleness: int, deterministic: bool
) -> int:
    """Maximum number of groups taken and not yet settled, at least 1.

    Never more than this replica's share (in (0, 1]) of all issuable groups: otherwise the first replica to read would
    take a whole batch and the others would idle.
    """
    running = 1 if deterministic else max(max_rows // group_size, 1)
    part = math.ceil(batch_groups * (max_staleness + 1) * share - _ROUNDING)
    return max(min(running * _AHEAD, part), 1)


class Speed:
    """Tokens per second of one rollout, as a moving average over recent groups.

    Per rollout and not per replica: the number of concurrent rollouts depends on the share, so a share that depended on
    total throughput would reinforce itself.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Records a group: tokens of its longest rollout, and its duration in seconds."""
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + seconds

    def read(self) -> float:
        """The speed; 0 before the first group."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0
