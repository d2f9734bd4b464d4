"""Async access to the `VoteStore`: opened on the first request; ranked pairs are written shortly after each vote."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.services.orchestrator.annotation.votes import VoteStore
from headrace.wire.process.lifecycle import wait_for

T = TypeVar("T")

_DISK_S = 30.0
_EXPORT_AFTER_S = 1.0


class AnnotationService:
    """Annotation of one run directory. Used on one event loop only."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._opening: asyncio.Task[VoteStore] | None = None
        self._export: asyncio.Task[None] | None = None
        self._is_stale = False
        """Votes have changed since the last export of the ranked pairs began."""

    async def ask(self, act: Callable[[VoteStore], T]) -> T:
        """Runs `act` on the `VoteStore` in a thread. Raises ConfigError or DataError if it cannot be opened."""
        votes = await self._votes()
        return await _on_disk(lambda: act(votes), "the votes")

    async def change(self, act: Callable[[VoteStore], T]) -> T:
        """Like `ask`, for an act that changes votes; schedules an export of the ranked pairs."""
        done = await self.ask(act)
        self._export_soon(await self._votes())
        return done

    async def close(self) -> None:
        """Writes the ranked pairs a last time and closes the votes."""
        opening = self._opening
        if opening is None:
            return
        # An open in progress will lock the votes: wait for it, so that they can be closed.
        await wait_for(asyncio.wait([opening]), _DISK_S, "the votes to be read")
        if self._export is not None:
            self._export.cancel()
            await asyncio.gather(self._export, return_exceptions=True)
        if opening.exception() is None:
            await _on_disk(opening.result().close, "the ranked pairs to be written")

    async def _votes(self) -> VoteStore:
        """Opens the `VoteStore` in one shared task, which survives cancelled callers; retries after a failure."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await wait_for(asyncio.shield(self._opening), _DISK_S, "the votes to be read")

    async def _open(self) -> VoteStore:
        votes = await asyncio.to_thread(VoteStore, self._run_dir)
        self._export_soon(votes)
        return votes

    def _export_soon(self, votes: VoteStore) -> None:
        self._is_stale = True
        if self._export is None or self._export.done():
            self._export = asyncio.create_task(self._export_later(votes))

    async def _export_later(self, votes: VoteStore) -> None:
        while self._is_stale:
            await asyncio.sleep(_EXPORT_AFTER_S)
            self._is_stale = False
            await _on_disk(votes.export, "the ranked pairs to be written")


async def _on_disk(act: Callable[[], T], what: str) -> T:
    return await wait_for(asyncio.to_thread(act), _DISK_S, what)
