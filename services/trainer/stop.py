"""How the trainer is told to stop: the first signal asks, the second ends the process at once."""

import os
import signal
from types import FrameType

from wire.errors import HeadraceError


class StoppedError(HeadraceError):
    """Asked to stop before there was anything to save."""


class StopSignal:
    """Set by SIGTERM or SIGINT. A plain flag: a handler that took a lock could meet the one its own thread holds."""

    def __init__(self) -> None:
        self._asked = False
        self._signalled = False
        self.signalled = False
        """A signal asked, not somebody in the run."""

    def install(self) -> None:
        """Takes both signals over; only the main thread may."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def asked(self) -> bool:
        """Whether the process should stop."""
        return self._asked

    def ask(self) -> None:
        """What the first signal does; an operator of the run may have been before it (from any thread)."""
        self._asked = True

    def receive(self) -> None:
        """A signal that came to another machine of the trainer."""
        self.signalled = True
        self.ask()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + number)
        self._signalled = True
        self.signalled = True
        self.ask()
