"""The number of groups and turns a replica takes at a time, and its speed. Pure."""

import math

_DETERMINISTIC = 2
"""Groups taken at a time by an engine that decodes one after the other."""
_MEMORY = 0.9
"""Decay of the weight of earlier groups with each new one."""
_ROUNDING = 1e-6


def group_limit(share: float, *, batch_groups: int, max_staleness: int, deterministic: bool) -> int:
    """Maximum number of groups taken and not yet settled, at least 1.

    This replica's share (in (0, 1]) of all issuable groups: otherwise the first replica to read would take a whole
    batch and the others would idle.
    """
    part = math.ceil(batch_groups * (max_staleness + 1) * share - _ROUNDING)
    return max(min(part, _DETERMINISTIC) if deterministic else part, 1)


class RowPool:
    """Rows of the engine, shared by groups of the stream and turns of episodes: neither can starve the other."""

    def __init__(self, rows: int, group_rows: int) -> None:
        """`rows` that the engine decodes at a time, of which a group takes `group_rows`."""
        self._rows, self.group_rows = rows, group_rows
        self.turns = 0
        """Turns being sampled."""

    def free(self, groups: int) -> int:
        """Number of further turns that may be sampled while so many groups are generated.

        Half of the rows are never denied for the sake of groups, which are taken ahead of free rows; a turn beyond the
        free rows then waits in the engine for a while.
        """
        most = max(self._rows - groups * self.group_rows, self._rows // 2, 1)
        return max(most - self.turns, 0)

    def groups_ahead(self, waiting: int) -> int:
        """Number of further groups that may be taken while so many rollouts wait for a row.

        As many wait as there are rows: each freed row is filled at once, although rollouts end at different times.
        """
        return max(math.ceil((self._rows - waiting) / self.group_rows), 0)


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
