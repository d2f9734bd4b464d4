"""Stopping the trainer by a signal: the first one requests a stop, the second ends the process at once."""

import os
import signal
from enum import StrEnum
from types import FrameType

from headrace.wire.errors import HeadraceError


class StoppedError(HeadraceError):
    """Asked to stop before there was anything to save."""


class TrainingEnd(StrEnum):
    """Why training ended, the same on all ranks."""

    FINISHED = "finished"
    """The last step is done."""
    STOPPED = "stopped"
    """An operator of the run stopped it: it stays so until the run is started again."""
    INTERRUPTED = "interrupted"
    """A signal to a process, on any machine: it goes on when that process is started again."""


class StopSignal:
    """Set by SIGTERM or SIGINT. A plain flag: a handler that took a lock could deadlock with its own thread."""

    def __init__(self) -> None:
        self._asked = False
        self._signalled = False
        self.signalled = False
        """Whether the cause is a signal, on any machine, and not an operator of the run."""

    def install(self) -> None:
        """Installs the handlers of both signals; only the main thread may."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def asked(self) -> bool:
        """Whether the process should stop."""
        return self._asked

    def ask(self) -> None:
        """Requests a stop, as the first signal does; also called for an operator of the run (from any thread)."""
        self._asked = True

    def receive(self) -> None:
        """Handles a signal that reached another machine of the trainer."""
        self.signalled = True
        self.ask()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + number)
        self._signalled = True
        self.signalled = True
        self.ask()
