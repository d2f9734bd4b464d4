"""The one asyncio thread beside the training step: streams, gRPC, HTTP, publication, reports."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from headrace.wire.errors import WaitTimeoutError
from headrace.wire.process.threads import start_threads
from headrace.wire.telemetry.logs import get_logger

T = TypeVar("T")
_STOP_S = 10.0
log = get_logger("trainer.background")


class BackgroundLoop:
    """Runs coroutines for the main thread. The error of a failed task is raised by the next `check`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._tasks: dict[str, Future[Any]] = {}

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def call(self, coroutine: Coroutine[object, object, T], timeout_s: float, what: str) -> T:
        """Runs `coroutine` on the loop and waits for it; raises WaitTimeoutError naming `what`."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise WaitTimeoutError(what, timeout_s) from error

    def spawn(self, coroutine: Coroutine[object, object, T], name: str) -> Future[T]:
        """Starts `coroutine` on the loop as a task that `check` watches under `name`."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._tasks[name] = future
        return future

    def check(self) -> None:
        """Raises the error of a watched task that has failed."""
        for name, future in list(self._tasks.items()):
            if future.done():
                del self._tasks[name]
                if not future.cancelled():
                    future.result()

    def stop(self) -> None:
        """Cancels every task and ends the thread, within ten seconds."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop)
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            log.error("background_stuck", tasks=[name for name, task in self._tasks.items() if not task.done()])

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(start_threads)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


async def _cancel_all() -> None:
    """Cancels all tasks of the loop, waits until they are over, then stops it."""
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_STOP_S / 2)
    asyncio.get_running_loop().stop()
