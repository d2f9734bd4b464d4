"""How many groups a replica takes at a time, and how fast it is. Pure."""

import math

_AHEAD = 2
"""Batches of rows: one being decoded and one waiting, so that freed rows are filled at once."""
_MEMORY = 0.9
"""Weight of all earlier groups against the newest one."""
_ROUNDING = 1e-6


def group_limit(
    share: float, *, max_rows: int, group_size: int, batch_groups: int, max_staleness: int, deterministic: bool
) -> int:
    """Groups taken and not yet settled at the same time, at least 1.

    Never more than this replica's share (in (0, 1]) of what may be issued at all: else the first replica to look would
    take a whole batch and the others would idle.
    """
    running = 1 if deterministic else max(max_rows // group_size, 1)
    part = math.ceil(batch_groups * (max_staleness + 1) * share - _ROUNDING)
    return max(min(running * _AHEAD, part), 1)


class Speed:
    """Tokens a second of one rollout, over the groups of late.

    Of one rollout and not of the replica: how many are decoded side by side follows from the share, and a share that
    followed from it would feed on itself.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """A group whose longest rollout has so many tokens took so long."""
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + seconds

    def read(self) -> float:
        """0 before the first group."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0
