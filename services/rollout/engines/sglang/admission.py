"""Limits the number of concurrent requests to the server. Used on one event loop only."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_DRAIN_POLL_S = 0.02


class Admission:
    """Request slots, granted in FIFO order."""

    def __init__(self, limit: int) -> None:
        """At most `limit` requests; those of other clients of the same server count too."""
        self._limit = limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self._held = False
        self._others = 0
        self.inside = 0

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self, *, first: bool = False) -> AsyncIterator[None]:
        """Waits for a slot and holds it; `first` puts the request at the head of the queue."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._queue.appendleft if first else self._queue.append)(turn)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            elif turn in self._queue:
                self._queue.remove(turn)
            raise
        try:
            yield
        finally:
            self._leave()

    async def drain(self, timeout_s: float) -> None:
        """Stops admission and waits until running requests have ended, or until the timeout."""
        self.hold()
        end = time.monotonic() + timeout_s
        while self.inside and time.monotonic() < end:
            await asyncio.sleep(_DRAIN_POLL_S)

    def hold(self) -> None:
        """Admits no further requests until `release`."""
        self._held = True

    def release(self) -> None:
        """Ends `hold`. Idempotent."""
        self._held = False
        self._let_in()

    def make_room(self, others: int) -> None:
        """Sets the number of other clients' requests on the server; at least one of ours is always admitted."""
        self._others = others
        self._let_in()

    def _leave(self) -> None:
        self.inside -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and not self._held and self.inside < max(self._limit - self._others, 1):
            turn = self._queue.popleft()
            if not turn.done():  # Otherwise it was cancelled, and its task has not run yet.
                self.inside += 1
                turn.set_result(None)
