"""The book behind an event loop: opened when somebody first asks, its ranked pairs written soon after each vote."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from services.orchestrator.annotation.book import Book
from wire.lifecycle import wait_for

T = TypeVar("T")

_DISK_S = 30.0
_EXPORT_AFTER_S = 1.0


class Desk:
    """Of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._book: Book | None = None
        self._opening = asyncio.Lock()
        self._export: asyncio.Task[None] | None = None

    async def ask(self, act: Callable[[Book], T]) -> T:
        """What `act` makes of the book, on a thread. Raises ConfigError or DataError if the book cannot be opened."""
        async with self._opening:
            if self._book is None:
                self._book = await _on_disk(lambda: Book(self._run_dir), "the votes to be read")
                self._export_soon()
        book = self._book
        return await _on_disk(lambda: act(book), "the votes")

    async def change(self, act: Callable[[Book], T]) -> T:
        """The same for an act that changes votes: the ranked pairs follow within a second or two."""
        done = await self.ask(act)
        self._export_soon()
        return done

    async def close(self) -> None:
        """Writes the ranked pairs for the last time."""
        if self._export is not None:
            self._export.cancel()
            await asyncio.gather(self._export, return_exceptions=True)
        if self._book is not None:
            await _on_disk(self._book.close, "the ranked pairs to be written")

    def _export_soon(self) -> None:
        if self._export is None or self._export.done():
            self._export = asyncio.create_task(self._export_later())

    async def _export_later(self) -> None:
        await asyncio.sleep(_EXPORT_AFTER_S)
        assert self._book is not None
        await _on_disk(self._book.export, "the ranked pairs to be written")


async def _on_disk(act: Callable[[], T], what: str) -> T:
    return await wait_for(asyncio.to_thread(act), _DISK_S, what)
