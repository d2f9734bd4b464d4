"""Deadlines of processor time: a busy machine uses nothing of them."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from headrace.services.reward.workers.process import WorkerProcess
from headrace.wire.errors import WaitTimeoutError

T = TypeVar("T")

_SHORTEST_S = 0.02
"""Between two looks at a child's processor time, which the kernel counts in hundredths of a second."""


class CpuClock:
    """Processor time of a child from now on."""

    def __init__(self, child: WorkerProcess) -> None:
        self._child, self._before = child, child.cpu_s()

    def used_s(self) -> float | None:
        """In seconds; None where the system does not report it."""
        after = self._child.cpu_s()
        return None if self._before is None or after is None else after - self._before


async def within_cpu_s(answer: Awaitable[T], meter: CpuClock, cpu_s: float, wall_s: float, what: str) -> T:
    """The child's answer; raises WaitTimeoutError after `cpu_s` of processor time, or `wall_s` in all.

    Where the system reports no processor time, `cpu_s` bounds the wait as such.
    """
    asked = asyncio.ensure_future(answer)
    begin = time.monotonic()
    try:
        while True:
            waited = time.monotonic() - begin
            used = meter.used_s()
            left, wall_left = cpu_s - (waited if used is None else used), wall_s - waited
            if min(left, wall_left) <= 0:
                raise WaitTimeoutError(what, waited)
            # A child with one thread cannot use it up earlier.
            await asyncio.wait({asked}, timeout=min(max(left, _SHORTEST_S), wall_left))
            if asked.done():
                return asked.result()
    finally:
        if not asked.done():
            asked.cancel()
            await asyncio.wait({asked})
