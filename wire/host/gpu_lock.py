"""The lock of a GPU that a trainer and an engine share: a kernel lock on a file of the run directory.

The holder may use the memory. The kernel releases the lock of a process that dies in any way; a child that
inherits the file keeps the lock until it is dead too. All processes are on one machine.
"""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.rundir.layout import RunPaths

_LOOK_S = 0.05


class GpuLock:
    """One end of the lock; used by one thread at a time."""

    def __init__(self, run_dir: Path, number: int, owner: str) -> None:
        """`number` identifies one of the run's shared GPUs; `owner` is what other processes read about the holder.

        Raises ConfigError if the run directory cannot be written to.
        """
        folder = RunPaths(run_dir).processes
        self._path = folder / f"gpu-{number}.lock"
        self._owner = owner
        self.name = f"GPU {number} of the run"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            """The descriptor, for a child that uses the GPU for us."""
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; the run directory must be writable") from error
        self.held = False

    @property
    def holder(self) -> str:
        """Name and pid of the last process that took the lock and has not given it back; empty if there is none."""
        try:
            record = json.loads(self._path.read_text())
            return f"{record['owner']} (pid {record['pid']})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def try_take(self) -> bool:
        """Takes it if it is free, or ours already; never waits."""
        if self.held:
            return True
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.held = True
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, json.dumps({"owner": self._owner, "pid": os.getpid()}).encode() + b"\n", 0)
        return True

    async def take(self, seconds: float, waits: Callable[[str], None] = lambda holder: None) -> None:
        """Waits for it; raises WaitTimeoutError naming the holder. `waits` is called with it at each look."""
        end = time.monotonic() + seconds
        while not self.try_take():
            if time.monotonic() > end:
                raise WaitTimeoutError(f"{self.name}, which {self.holder or 'another process'} holds", seconds)
            waits(self.holder)
            await asyncio.sleep(_LOOK_S)

    def give(self) -> None:
        """Releases the lock; does nothing if this process does not hold it."""
        if self.held:
            os.ftruncate(self.file, 0)
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.held = False
