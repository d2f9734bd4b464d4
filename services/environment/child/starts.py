"""Starts the processes of episodes: few at a time, and with one meaning for each way to fail."""

import asyncio
import os

from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError


class ChildStarts:
    """The starts of one worker. On one event loop only."""

    def __init__(self, at_a_time: int = 0) -> None:
        """`at_a_time`: 0 = one a CPU, and at least two.

        Imports take a CPU: of many at a time none would be done within `start_s`.
        """
        self.turn = asyncio.Semaphore(at_a_time or max(len(os.sched_getaffinity(0)), 2))
        """Is held while a process is started."""
        self._has_started = False

    async def start(self, made: ChildProcess) -> None:
        """Starts a process; one that does not start is killed.

        Raises ConfigError, EnvironmentFailedError. Once one has started the config is in order: what fails later is a
        ChildDiedError.
        """
        try:
            await made.start()
        except BaseException as error:
            await made.kill()
            if isinstance(error, ConfigError) and self._has_started:
                # The machine ran out of processes or namespaces, or a folder is gone: as passing as any other death.
                raise ChildDiedError(str(error)) from error
            raise
        self._has_started = True
