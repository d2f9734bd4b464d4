"""Async access to the `VoteStore`, which is opened on the first request."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.services.orchestrator.annotation.votes import VoteStore
from headrace.wire.process.lifecycle import wait_for

T = TypeVar("T")

_DISK_S = 30.0


class AnnotationService:
    """Annotation of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._votes: VoteStore | None = None

    async def ask(self, act: Callable[[VoteStore], T]) -> T:
        """Runs `act` on the `VoteStore` in a thread, one at a time. Raises ConfigError if it cannot be opened."""
        return await wait_for(asyncio.to_thread(self._act, act), _DISK_S, "the votes")

    async def close(self) -> None:
        """Closes the votes if they are open."""
        await wait_for(asyncio.to_thread(self._close), _DISK_S, "the votes")

    def _act(self, act: Callable[[VoteStore], T]) -> T:
        with self._lock:
            if self._votes is None:
                self._votes = VoteStore(self._run_dir)
            return act(self._votes)

    def _close(self) -> None:
        with self._lock:
            if self._votes is not None:
                self._votes.close()
