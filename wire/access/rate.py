"""Bounds the calls that a role makes of a method in a second. Pure but for its clock."""

import time
from collections.abc import Callable

from headrace.wire.access.roles import Role

MOST_PER_S = 1_000.0
"""512 replicas that each send a heartbeat a second make half of it."""
BURST = 2_000.0
UNBOUNDED = frozenset(
    {"/wire.v1.RolloutService/Sample", "/wire.v1.RolloutService/Chat", "/wire.v1.RewardService/Score"}
)
"""Methods whose calls wait for places of their own: rows of the engine, slots of a scorer."""


class CallRate:
    """A bucket of `BURST` calls for each role and method, filled with `MOST_PER_S` a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[frozenset[Role], str], tuple[float, float]] = {}
        """-> (calls left, when that was counted)."""

    def admits(self, roles: frozenset[Role], method: str) -> bool:
        """Takes a call out of the bucket; False, and nothing taken, if none is left."""
        if method in UNBOUNDED:
            return True
        now = self._clock()
        left, counted = self._buckets.get((roles, method), (BURST, now))
        left = min(BURST, left + (now - counted) * MOST_PER_S)
        admitted = left >= 1.0
        self._buckets[roles, method] = (left - admitted, now)
        return admitted
