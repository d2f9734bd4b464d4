"""How a process waits, stops and dies: named deadlines, two signals, death with the parent."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from headrace.wire.errors import WaitTimeoutError

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_CLOSE_S = 5.0


async def wait_for(awaitable: Awaitable[T], seconds: float, what: str) -> T:
    """Awaits with a deadline; raises WaitTimeoutError naming `what`."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await awaitable
    except TimeoutError as error:
        if scope.expired():
            raise WaitTimeoutError(what, seconds) from error
        raise


async def within(awaitable: Awaitable[object], seconds: float) -> bool:
    """Awaits for so many seconds at most; returns whether it has ended by then."""
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True


def in_time(
    act: Callable[[], T], seconds: float, name: str, left_behind: Callable[["Future[T]"], object] = lambda _: None
) -> T:
    """Runs `act`, which may block for ever, on a daemon thread `name`; raises TimeoutError at the deadline.

    For torch's store, which forgets its own deadline when its host is there but frozen. `left_behind` receives the
    future of an `act` that missed its deadline.
    """
    begun = _begin(act, name)
    try:
        return begun.result(seconds)
    except TimeoutError:
        # An error that `act` itself raised in time is not a hanging thread.
        if not begun.done():
            left_behind(begun)
        raise


async def aside(act: Callable[[], T], name: str) -> T:
    """Calls what blocks for long on a thread `name` of its own.

    Unlike one of `asyncio.to_thread` it holds up no end: neither the loop nor the process waits for it.
    """
    return await asyncio.wrap_future(_begin(act, name))


def _begin(act: Callable[[], T], name: str) -> "Future[T]":
    done: Future[T] = Future()
    # The waiting task may be cancelled; the thread goes on, and must find its future as it left it.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


class Shutdown:
    """The first SIGTERM or SIGINT sets `event`; the second ends the process at once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes over both signals on `loop` (of the main thread)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        if self.event.is_set():
            os._exit(128 + signal.SIGTERM)
        self.event.set()

    async def sleep(self, seconds: float) -> bool:
        """Sleeps, but no longer than until the shutdown; returns whether it has come."""
        return await within(self.event.wait(), seconds)


async def until_first_end(
    shutdown: Shutdown, then: Callable[[], None], *parts: Awaitable[object], close_s: float | None = _CLOSE_S
) -> None:
    """Runs all parts; when one ends, or at shutdown, lets the first hand back what it has and cancels the others.

    `then` is called before: nothing more is taken, and the orchestrator is notified, while it hands back. That may take
    `close_s`; None: until the supervisor kills the process.
    """
    tasks = [asyncio.ensure_future(part) for part in (*parts, shutdown.event.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        then()
        shutdown.event.set()
        await asyncio.wait(tasks[:1], timeout=close_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in (*done, tasks[0]):
        if not task.cancelled():
            task.result()


def die_with_parent() -> None:
    """Asks Linux to SIGKILL this process when the thread that started it ends; elsewhere does nothing.

    For use between fork and exec. A parent that died before this call is noticed too.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
