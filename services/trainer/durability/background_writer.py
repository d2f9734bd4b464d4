"""The one thread that writes checkpoints while training goes on."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class BackgroundWriter:
    """Runs one write at a time. Its error is raised where the training thread asks next."""

    def __init__(self) -> None:
        self._write: Future[None] = Future()
        self._write.set_result(None)

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return not self._write.done()

    def start(self, write: Callable[[], None]) -> None:
        """Starts a write, once the one before has ended; raises its error."""
        self.wait()
        self._write = Future()
        # A daemon: a process that fails elsewhere leaves a part behind, as a killed one does.
        threading.Thread(target=complete, args=(self._write, write), daemon=True, name="checkpoint").start()

    def check(self) -> None:
        """Raises the error of a write that has failed."""
        if self._write.done():
            self._write.result()

    def wait(self) -> None:
        """Returns when no write is under way; raises the error of one that has failed."""
        self._write.result()


def complete(ended: Future[T], work: Callable[[], T]) -> None:
    """Gives `ended` what the work returns or raises."""
    try:
        ended.set_result(work())
    except BaseException as error:
        ended.set_exception(error)
