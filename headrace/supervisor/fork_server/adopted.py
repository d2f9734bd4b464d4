"""A process that the kernel gave to this one as a child: the interface of `asyncio.subprocess.Process`."""

import asyncio
import os
import signal


class AdoptedProcess:
    """One child, watched by its pidfd on the running loop."""

    def __init__(self, pid: int) -> None:
        """Raises OSError if there is no such child."""
        self.pid = pid
        self.returncode: int | None = None
        """None while it runs; negative after a signal."""
        self._pidfd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Waits for its end and returns the exit status."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal; raises ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set()
