"""Signals that end a supervisor: the first one stops its processes in order, the second one at once."""

import asyncio
import signal
from collections.abc import Callable, Coroutine

from headrace.supervisor.processes import ProcessSet


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP of the main thread, from `listen` on."""

    def __init__(self, notice: Callable[[str], None], what: str = "the step ends and a checkpoint is written") -> None:
        """`notice` is called once, with `what` happens now."""
        self._notice, self._what = notice, what
        self.asked = asyncio.Event()
        self._at_once = asyncio.Event()

    def listen(self) -> None:
        """Handles the signals in the running event loop, but for those that `nohup` or a shell's `&` has set aside."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, self._receive)

    async def end(self, processes: ProcessSet, in_order: Coroutine[object, object, None]) -> None:
        """Ends all processes: by `in_order`, which has deadlines, or at once after a second signal."""
        processes.stop_restarting()
        orderly, now = asyncio.ensure_future(in_order), asyncio.ensure_future(self._at_once.wait())
        try:
            await asyncio.wait({orderly, now}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            now.cancel()
            orderly.cancel()
            processes.kill()
            await processes.settle()

    def _receive(self) -> None:
        if self.asked.is_set():
            self._at_once.set()
        else:
            self._notice(f"stopping: {self._what}; once more stops at once")
        self.asked.set()
