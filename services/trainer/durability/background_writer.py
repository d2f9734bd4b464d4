"""A thread's work beside training: checkpoints are written by one writer, records of steps by another."""

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from headrace.wire.errors import WaitTimeoutError

T = TypeVar("T")


class BackgroundWriter:
    """Runs writes in order, one at a time. The error of one ends those after it, and is raised by the next call."""

    def __init__(self, what: str, *, depth: int = 1) -> None:
        """`what` is written, for the error of a wait; at most `depth` writes are begun and not ended."""
        self._what = what
        self._writes: deque[Future[None]] = deque((_ended() for _ in range(depth)), maxlen=depth)
        """The last ones, newest at the end."""

    @property
    def busy(self) -> bool:
        """Whether a write has not ended."""
        return not self._writes[-1].done()

    @property
    def full(self) -> bool:
        """Whether `start` would wait."""
        return not self._writes[0].done()

    def start(self, write: Callable[[], None], *, limit_s: float | None = None) -> None:
        """Queues a write; first waits for room in the queue. Raises the error of one that has failed.

        Raises WaitTimeoutError after `limit_s` seconds.
        """
        self.check()
        self._end(self._writes[0], limit_s)
        before, ended = self._writes[-1], Future[None]()

        def in_turn() -> None:
            before.result()
            write()

        self._writes.append(ended)
        # A daemon: a process that fails elsewhere leaves a part behind, as a killed one does.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(complete, ended, in_turn), daemon=True, name=self._what).start()

    def check(self) -> None:
        """Raises the error of a write that has failed."""
        if self._writes[-1].done():
            self._writes[-1].result()

    def wait(self, limit_s: float | None = None) -> None:
        """Returns when all writes begun before the call have ended; raises the error of one that has failed.

        Raises WaitTimeoutError after `limit_s` seconds.
        """
        self._end(self._writes[-1], limit_s)

    def _end(self, write: Future[None], limit_s: float | None) -> None:
        if limit_s is not None and wait([write], limit_s).not_done:
            raise WaitTimeoutError(f"{self._what} to be written", limit_s)
        write.result()


def complete(ended: Future[T], work: Callable[[], T]) -> None:
    """Gives `ended` what the work returns or raises."""
    try:
        ended.set_result(work())
    except BaseException as error:
        ended.set_exception(error)


def _ended() -> Future[None]:
    ended = Future[None]()
    ended.set_result(None)
    return ended
