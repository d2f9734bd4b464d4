"""Warm children, one a slot: an episode takes one, and gives it back if it is still whole."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError

ChildT = TypeVar("ChildT", bound=ChildProcess)


class ChildPool(Generic[ChildT]):
    """At most `slots` children; each is started when it is first needed. On one event loop only."""

    def __init__(self, make: Callable[[], ChildT], slots: int, *, starts: int = 0) -> None:
        """`make` gives a child that is not started; `starts`: how many start at a time, 0 = one a CPU and at least two.

        Imports take a CPU: of many at a time none would be done within `start_s`.
        """
        self._make = make
        self._starts = asyncio.Semaphore(starts or max(len(os.sched_getaffinity(0)), 2))
        self._has_started = False
        self._free = asyncio.Semaphore(slots)
        self._idle: list[ChildT] = []
        self._children: set[ChildT] = set()

    @asynccontextmanager
    async def child(self) -> AsyncIterator[ChildT]:
        """A child for one episode; the wait for a free slot is the caller's to bound.

        Raises ConfigError if the user's code cannot be loaded or isolated, EnvironmentFailedError if it is not ready in
        time. Once a child has started the config is in order: what fails later is a ChildDiedError.
        """
        async with self._free:
            found = await self._healthy()
            try:
                yield found
            finally:
                if found.alive and not found.once:
                    self._idle.append(found)
                else:
                    await self._clear_away(found)

    async def _clear_away(self, dead: ChildT) -> None:
        """One that died by itself has left its socket, its folder and perhaps processes."""
        try:
            await dead.kill()
        finally:
            self._children.discard(dead)

    async def close(self) -> None:
        """Kills all children."""
        await asyncio.gather(*(one.kill() for one in self._children))
        self._children.clear()
        self._idle.clear()

    async def _healthy(self) -> ChildT:
        if (found := await self._given_back()) is not None:
            return found
        async with self._starts:
            return await self._given_back() or await self._made()

    async def _given_back(self) -> ChildT | None:
        while self._idle:
            found = self._idle.pop()
            if found.alive:
                return found
            await self._clear_away(found)
        return None

    async def _made(self) -> ChildT:
        made = self._make()
        self._children.add(made)
        try:
            await made.start()
        except BaseException as error:
            await self._clear_away(made)
            if isinstance(error, ConfigError) and self._has_started:
                # The machine ran out of processes or namespaces, or a folder is gone: as passing as any other death.
                raise ChildDiedError(str(error)) from error
            raise
        self._has_started = True
        return made
