"""How many requests are on their way to the server at the same time. Lives on one event loop."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_DRAIN_POLL_S = 0.02


class Admission:
    """Places for requests, given in the order of asking."""

    def __init__(self, limit: int) -> None:
        """`limit` requests at most; those of others on the same server take places too."""
        self._limit = limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self._held = False
        self._others = 0
        self.inside = 0

    @property
    def waiting(self) -> int:
        """Requests without a place."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self, *, first: bool = False) -> AsyncIterator[None]:
        """Waits for a place and keeps it; `first`: the next one that is free."""
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
        """Holds, and lets those inside leave; returns when they have, or when the time is over."""
        self.hold()
        end = time.monotonic() + timeout_s
        while self.inside and time.monotonic() < end:
            await asyncio.sleep(_DRAIN_POLL_S)

    def hold(self) -> None:
        """Nobody else gets in until `release`."""
        self._held = True

    def release(self) -> None:
        """Ends `hold`. Idempotent."""
        self._held = False
        self._let_in()

    def make_room(self, others: int) -> None:
        """So many requests on the server are not ours; one of ours may always be there."""
        self._others = others
        self._let_in()

    def _leave(self) -> None:
        self.inside -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and not self._held and self.inside < max(self._limit - self._others, 1):
            turn = self._queue.popleft()
            if not turn.done():  # Else it was cancelled, and has not come to say so yet.
                self.inside += 1
                turn.set_result(None)
