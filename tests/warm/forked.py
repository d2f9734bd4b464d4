"""A child that was forked from a fork server, with the interface of `subprocess.Popen` as far as tests use it."""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence


class Forked:
    """One child of this process."""

    def __init__(self, pid: int, args: Sequence[str]) -> None:
        self.pid, self.args = pid, args
        self.returncode: int | None = None
        """None while it runs; negative after a signal."""
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                    os.close(self._pidfd)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end. Raises subprocess.TimeoutExpired."""
        if self.poll() is None:
            # A copy: another thread that waits may close the first.
            with self._lock:
                watched = None if self.returncode is not None else os.dup(self._pidfd)
            if watched is not None:
                try:
                    if not select.select([watched], [], [], timeout)[0]:
                        raise subprocess.TimeoutExpired(self.args, timeout or 0)
                finally:
                    os.close(watched)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended."""
        with self._lock:
            if self.returncode is None:
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
