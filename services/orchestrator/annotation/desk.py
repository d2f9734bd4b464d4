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
        self._opening: asyncio.Task[Book] | None = None
        self._export: asyncio.Task[None] | None = None
        self._is_stale = False
        """Votes have changed since the ranked pairs were last begun."""

    async def ask(self, act: Callable[[Book], T]) -> T:
        """What `act` makes of the book, on a thread. Raises ConfigError or DataError if the book cannot be opened."""
        book = await self._book()
        return await _on_disk(lambda: act(book), "the votes")

    async def change(self, act: Callable[[Book], T]) -> T:
        """The same for an act that changes votes: the ranked pairs follow within a second or two."""
        done = await self.ask(act)
        self._export_soon(await self._book())
        return done

    async def close(self) -> None:
        """Writes the ranked pairs for the last time."""
        opening = self._opening
        if opening is None:
            return
        # An opening that is under way will hold the votes: they are closed behind it.
        await wait_for(asyncio.wait([opening]), _DISK_S, "the votes to be read")
        if self._export is not None:
            self._export.cancel()
            await asyncio.gather(self._export, return_exceptions=True)
        if opening.exception() is None:
            await _on_disk(opening.result().close, "the ranked pairs to be written")

    async def _book(self) -> Book:
        """Opened by one task, which outlives those who wait for it; after a failure by another one."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await wait_for(asyncio.shield(self._opening), _DISK_S, "the votes to be read")

    async def _open(self) -> Book:
        book = await asyncio.to_thread(Book, self._run_dir)
        self._export_soon(book)
        return book

    def _export_soon(self, book: Book) -> None:
        self._is_stale = True
        if self._export is None or self._export.done():
            self._export = asyncio.create_task(self._export_later(book))

    async def _export_later(self, book: Book) -> None:
        while self._is_stale:
            await asyncio.sleep(_EXPORT_AFTER_S)
            self._is_stale = False
            await _on_disk(book.export, "the ranked pairs to be written")


async def _on_disk(act: Callable[[], T], what: str) -> T:
    return await wait_for(asyncio.to_thread(act), _DISK_S, what)
