"""Limits requests of clients outside the run: they share a bound, so that the stream is never crowded out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.wire.process.lifecycle import wait_for


class RequestLimiter:
    """Admits `count` calls at a time; a call that waits longer than the deadline is rejected."""

    def __init__(self, count: int, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._free = asyncio.Semaphore(count)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Holds one of them. Raises WaitTimeoutError."""
        await wait_for(self._free.acquire(), self.timeout_s, "a place among the scoring requests")
        try:
            yield
        finally:
            self._free.release()
