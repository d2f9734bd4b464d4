"""Decides whether a server that refuses a request (403) refuses only this one, or all.

A firewall or a moderation filter refuses a sample for its content; a server that we may not use refuses every request.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Bans:
    """Requests and successes of one endpoint since the start."""

    def __init__(self) -> None:
        self._has_served = False
        self._open = 0
        self._news = asyncio.Event()

    def served(self) -> None:
        """A request was answered well."""
        self._has_served = True
        self._news.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is on its way inside, or waits for its turn."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._news.set()

    async def spare_others(self, seconds: float) -> bool:
        """Whether another request has been served, so that a ban is one request's own fault. Those that are on their
        way are waited for, `seconds` at most.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open and not self._has_served:
                    self._news.clear()
                    await self._news.wait()
        return self._has_served
