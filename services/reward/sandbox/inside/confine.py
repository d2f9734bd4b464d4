"""What a forked child gives up before it runs a program: privileges, resources, system calls."""

import ctypes
import os
import resource
import struct
from dataclasses import dataclass

from headrace.services.reward.sandbox.inside.seccomp import Filter, make_filter

PATIENCE = 10
_CAPABILITY_VERSION = 0x20080522
_LAST_FD = 4096
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test. Passed into the sandbox as numbers on the server's command line."""

    timeout_s: float = 1.0
    """Wall-clock time, less what it waited for a CPU."""
    memory_bytes: int = 512 * 1024 * 1024
    """Address space of the test's one process, the interpreter's own 30 MiB included."""
    output_bytes: int = 4 * 1024 * 1024
    """Largest standard output, standard error, and any file; each."""
    tmp_bytes: int = 16 * 1024 * 1024
    """All files in /tmp together."""
    threads: int = 32
    files: int = 64
    """Open at a time."""
    patience: int = PATIENCE
    """A test that waits for a CPU may take so many times `timeout_s`; after that its program cannot be judged."""


def limit(limits: Limits) -> None:
    """For the fork server: its children inherit what it may use, and cannot raise it again. Raises OSError."""
    resources = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.threads,
        resource.RLIMIT_FSIZE: limits.output_bytes,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in resources.items():
        resource.setrlimit(kind, (value, value))


class Confinement:
    """What a child gives up for good, also for the processes it starts: prepared once, to save work in each child."""

    def __init__(self, limits: Limits) -> None:
        """Raises OSError on a machine whose system calls are not known."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._cpu_s = int(limits.timeout_s) + 2
        self._header, self._nothing = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
        self._filter = Filter(self._libc, make_filter())

    def enter(self) -> None:
        """Confines this process for good. Raises OSError."""
        resource.setrlimit(resource.RLIMIT_CPU, (self._cpu_s, self._cpu_s))
        # Effective, permitted, inheritable: no capability; ambient ones fall with them.
        if self._libc.capset(self._header, self._nothing):
            raise OSError(ctypes.get_errno(), "capset")
        # RLIMIT_CORE does not hold where the machine pipes its core dumps into a program.
        if self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
        self._filter.install()

    def rehearse(self) -> None:
        """Makes the same calls with arguments that change nothing."""
        resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))
        self._libc.capset(bytes(8), self._nothing)
        self._libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
        self._filter.rehearse()


def keep_only(wanted: list[int]) -> None:
    """File descriptor wanted[k] becomes k; all others are closed."""
    beyond = [os.dup(fd) for fd in wanted]
    while min(beyond) < len(wanted):  # None may be written over before it has moved.
        beyond = [os.dup(fd) if fd < len(wanted) else fd for fd in beyond]
    for number, fd in enumerate(beyond):
        os.dup2(fd, number)
    os.closerange(len(wanted), _LAST_FD)
