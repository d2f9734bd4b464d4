"""The fork server of a sandbox: it forks one child for each test, kills what is left of it, and reports how it ended.

It never runs a program itself and never sees what one reads or writes: those are files that the service made, whose
descriptors it hands on to the child unread. So nothing of one test is in the memory that the next child is forked from.
Each child is process 1 of its own pid namespace: it sees no other process, and when it ends the kernel kills all
it has started. /tmp is the one place where it can write; a changed one is replaced by a fresh one.

Protocol, on one SOCK_SEQPACKET socket: a message with four descriptors (standard input, standard output, standard
error, program) is a test, and is answered by `REPLY`. While it runs, `ASKS` with the descriptor of its process may come
before that: the service, which has a /proc, answers by `WAITED`. The end of the socket ends the running test, and the
server.
"""

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
from os import environ
from typing import NoReturn

from headrace.services.reward.sandbox.inside import program
from headrace.services.reward.sandbox.inside.confine import Confinement, Limits, keep_only, limit

REPLY = struct.Struct("<ciddd")
"""How it ended (`EXITED`, ...), exit status or signal; seconds: wall, CPU, waited for a CPU."""
EXITED, SIGNALLED, TIMED_OUT, STARVED = b"x", b"s", b"t", b"w"
WAITED = struct.Struct("<d")
"""Seconds that a test has waited for a CPU."""
READY, ASKS = b"ready", b"asks"
_PRELOADED = "bisect collections copy functools heapq io itertools math operator random re string threading time typing"
"""What programs import most: paid for once. Each further one makes each fork a little dearer."""
_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
_TMP = b"/tmp"
_MOUNT_FLAGS = 2 | 4 | 8 | 1024  # nosuid, nodev, noexec, noatime
_MNT_DETACH = 2
_BIND_AGAIN_READ_ONLY = 4096 | 32 | 1
_NOSUID_NOEXEC = 2 | 8
_CLOCK_TICK_S = 0.01
"""The file system's clock may move in such steps: a change within the step of the mount would not show."""
_STEPS = 4
"""Looks at a test within its time."""
_SMALL_S = 0.02
"""Time that a test was not on a CPU that is not asked about."""


class Server:
    """Serves one test at a time, until the service closes the socket."""

    def __init__(self, control: socket.socket, limits: Limits) -> None:
        self._control, self._limits = control, limits
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._confinement = Confinement(limits)
        self._fresh: tuple[int, ...] = ()
        self._here = -1

    def run(self) -> None:
        """Returns when the service has gone."""
        self._own_namespaces()
        self._keep_devices()
        self._here = os.pidfd_open(os.getpid())
        self._renew_tmp()
        for fd in (0, 1):  # Empty files, as a test's are: the interpreter's streams take note of what they are.
            os.dup2(os.memfd_create("empty"), fd)
        program.prepare()
        self._confinement.rehearse()
        limit(self._limits)
        gc.collect()
        gc.freeze()
        self._control.send(READY)
        while True:
            message, files, _, _ = socket.recv_fds(self._control, 16, 4)
            if not message:
                return
            if len(files) == 4:
                reply = self._test(files)
                self._renew_tmp()
                self._control.send(reply)

    def _own_namespaces(self) -> None:
        """Enters pid and mount namespaces of its own: only their owner may create children's namespaces, and mount."""
        self._check(self._libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID), "unshare")
        pid = os.fork()
        if pid:
            self._control.close()
            os.waitpid(pid, 0)
            os._exit(0)

    def _keep_devices(self) -> None:
        """Remounts devices read-only: no test may change their times and modes. They can still be written to."""
        for name in os.listdir(b"/dev"):
            path = b"/dev/" + name
            flags = os.statvfs(path).f_flag & _NOSUID_NOEXEC
            self._check(self._libc.mount(None, path, None, _BIND_AGAIN_READ_ONLY | flags, None), f"remount {name!r}")

    def _test(self, files: list[int]) -> bytes:
        # A process may give its next child a pid namespace only from its own: hence the way back first.
        self._check(self._libc.setns(self._here, _CLONE_NEWPID), "setns")
        self._check(self._libc.unshare(_CLONE_NEWPID), "unshare")
        started = time.monotonic()
        pid = os.fork()
        if not pid:
            self._become_test(files, started)
        for file in files:
            os.close(file)
        ending, waited = self._watch(pid, started)
        _, status, used = os.wait4(pid, 0)
        wall, cpu = time.monotonic() - started, used.ru_utime + used.ru_stime
        code = os.waitstatus_to_exitcode(status)
        if ending == EXITED and code < 0:
            ending = SIGNALLED
        if ending == EXITED and code == program.SLEEPS:
            ending = TIMED_OUT
        return REPLY.pack(ending, abs(code), wall, cpu, min(waited, wall))

    def _watch(self, pid: int, started: float) -> tuple[bytes, float]:
        """Waits for the end of the test, and brings it about when its time is over or the service has gone. Returns how
        it ended, and the seconds for which it waited for a CPU.
        """
        watched = os.pidfd_open(pid)
        try:
            return self._wait(pid, watched, started)
        finally:
            os.close(watched)

    def _wait(self, pid: int, watched: int, started: float) -> tuple[bytes, float]:
        timeout_s, waited = self._limits.timeout_s, 0.0
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            left = timeout_s + waited - (time.monotonic() - started)
            pause = min(max(left, _SMALL_S), timeout_s / _STEPS)
            ready = {fd for fd, _ in poll.poll(pause * 1000)}
            wall, cpu = time.monotonic() - started, _cpu_s(pid)
            has_gone = self._control.fileno() in ready
            if not has_gone and (wall >= timeout_s or wall - cpu - waited > _SMALL_S):
                waited = max(waited, self._ask(watched))
            if watched in ready:
                return EXITED, waited
            is_over = max(cpu, wall - waited) >= timeout_s if wall >= timeout_s else False
            if has_gone or is_over or wall >= timeout_s * self._limits.patience:
                os.kill(pid, signal.SIGKILL)
                return TIMED_OUT if has_gone or is_over else STARVED, waited

    def _ask(self, watched: int) -> float:
        """Seconds for which the test has waited for a CPU; 0 if the service has gone, which the next poll notices."""
        socket.send_fds(self._control, [ASKS], [watched])
        answer = self._control.recv(WAITED.size)
        return float(WAITED.unpack(answer)[0]) if answer else 0.0

    def _become_test(self, files: list[int], started: float) -> NoReturn:
        try:
            stdin, stdout, stderr, source = files
            os.setsid()
            keep_only([stdin, stdout, stderr, stdout, source])
            self._confinement.enter()
            program.run(self._limits.timeout_s)
        finally:  # It must never go on as a second server.
            os._exit(111)

    def _renew_tmp(self) -> None:
        if self._fresh and self._fresh == _look(_TMP):
            return
        if self._fresh:
            self._check(self._libc.umount2(_TMP, _MNT_DETACH), "umount")
        options = f"size={self._limits.tmp_bytes},nr_inodes=1024,mode=0700".encode()
        self._check(self._libc.mount(b"tmpfs", _TMP, b"tmpfs", _MOUNT_FLAGS, options), "mount")
        os.utime(_TMP, (0, 0))
        time.sleep(_CLOCK_TICK_S)
        self._fresh = _look(_TMP)

    def _check(self, result: int, what: str) -> None:
        if result:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _cpu_s(pid: int) -> float:
    """CPU time of a process and all its threads; it need not have ended, nor still run."""
    return time.clock_gettime((~pid << 3) | 2)


def _look(folder: bytes) -> tuple[int, ...]:
    """Differs after any change of the folder: its times, its mode, the room left."""
    found, room = os.stat(folder), os.statvfs(folder)
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (*times, found.st_mode, found.st_size, found.st_ino, found.st_dev, room.f_bfree, room.f_ffree)


def main(control: int, packages: str, *numbers: str) -> None:
    """Entry of the sandbox: descriptor of the socket, the folder of further packages, the fields of `Limits`."""
    environ.clear()
    sys.path[:] = [entry for entry in sys.path if not entry.startswith("/headrace")]
    if packages:
        sys.path.append(packages)
    sys.argv[:] = ["program.py"]
    _preload()
    timeout_s, *others = numbers
    server = Server(socket.socket(fileno=control), Limits(float(timeout_s), *map(int, others)))
    server.run()


def _preload() -> None:
    """Without what `random` and `threading` do after a fork: there is one thread, and a program shall draw the same
    random numbers each time. It would cost each test a third of a millisecond.
    """
    real = os.register_at_fork
    os.register_at_fork = lambda **_: None
    for name in _PRELOADED.split():
        importlib.import_module(name)
    os.register_at_fork = real
    sys.modules["random"].seed(0)
