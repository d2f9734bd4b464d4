"""Turns that are being sampled: each once, even if the connections that asked for it are lost."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
TurnT = TypeVar("TurnT")


class EpisodeOverError(Exception):
    """The turn was given up: its episode is over."""


class Flights(Generic[KeyT, TurnT]):
    """The turns of one episode that are being sampled, by what was asked. On one event loop only."""

    def __init__(self, refusals: type[Exception]) -> None:
        """`refusals`: errors that are an answer to the caller, and no end of the episode."""
        self._refusals = refusals
        self._running: dict[KeyT, asyncio.Task[TurnT]] = {}
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """What no answer to the caller can say: it ends the episode."""

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._running

    async def join(self, key: KeyT, sample: Callable[[], Coroutine[Any, Any, TurnT]]) -> TurnT:
        """What `sample` returns; a call with a key that is in flight joins the first one.

        A caller that hangs up ends its connection, not the turn. Raises EpisodeOverError, and what `sample` raises.
        """
        running = self._running.get(key)
        if running is None:
            running = asyncio.create_task(sample(), name="sample a turn of an episode")
            self._running[key] = running
            running.add_done_callback(lambda done: self._end(key, done))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.cancelled():
                raise EpisodeOverError from None
            raise

    async def close(self) -> None:
        """Gives up what is being sampled."""
        running = list(self._running.values())
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _end(self, key: KeyT, done: asyncio.Task[TurnT]) -> None:
        del self._running[key]
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception) and not isinstance(error, self._refusals) and not self.failed.done():
            self.failed.set_result(error)
