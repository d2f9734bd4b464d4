"""The engine's thread: decodes while there is work and it is not paused, and runs commands between decode steps."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import torch

from headrace.services.rollout.engines.torch.core import EngineCore

T = TypeVar("T")

_IDLE_S = 1.0


class EngineThread:
    """Owns the core; other threads access it through `call`."""

    def __init__(self, *, threads: int) -> None:
        """`threads` is torch's number of threads for decoding."""
        self.core: EngineCore | None = None
        self.paused = False
        self.failure: Future[None] = Future()
        """Receives the exception that ended the thread; never a result."""
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = threads
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def call(self, act: Callable[[], T]) -> Future[T]:
        """Runs `act` on the thread, between two steps."""
        future: Future[T] = Future()

        def command() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = act()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._commands.put(command)
        return future

    def end(self) -> None:
        """Asks the thread to end after the current step."""
        self._ending = True
        self._commands.put(lambda: None)

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread to end; returns whether it did."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            while not self._ending:
                self._obey()
                if self._can_step():
                    assert self.core is not None
                    self.core.step()
        except BaseException as error:
            # A step failed: the state of its rows is unknown, so the process must end and report the reason.
            self.failure.set_exception(error)

    def _can_step(self) -> bool:
        return self.core is not None and not self.paused and self.core.has_work

    def _obey(self) -> None:
        """Runs all queued commands; waits for one if there is nothing to decode."""
        try:
            command = self._commands.get(block=not self._can_step(), timeout=_IDLE_S)
            while True:
                command()
                command = self._commands.get_nowait()
        except queue.Empty:
            return
