"""The fork server as the supervisor sees it: starts it, asks it for processes, and does without it once it is gone."""

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from headrace.supervisor.fork_server.request import LONGEST, ForkRequest, module_of
from headrace.wire.errors import HeadraceError
from headrace.wire.process.lifecycle import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_LOADED_S = 180.0
"""Longest import of the libraries, from a cold disk."""
_FORKED_S = 30.0
_ENDED_S = 5.0


class ForkServerError(HeadraceError):
    """The fork server did not fork: start the process by its command line."""


class ForkServer:
    """One fork server, a child of this process. Used on the main thread only; its processes become children here."""

    def __init__(self, env: dict[str, str], modules: Sequence[str], *, heavy: Sequence[str]) -> None:
        """Starts it, and returns before it has imported `modules` under `env`, the environment of all its processes.

        Processes of the modules `heavy` wait for that; the others start faster on their own until then.
        """
        self._heavy = frozenset(heavy)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._loaded = self._asked = False
        self._trouble = ""
        self._turn = asyncio.Lock()
        with theirs:
            self._process = execute_server(theirs.fileno(), self._errors.fileno(), modules, env)
        self._until = time.monotonic() + _LOADED_S

    def serves(self, argv: tuple[str, ...]) -> bool:
        """Whether to ask it for this process: not once it is gone, nor while a start of its own would be faster.

        Raises ForkServerError if it has ended meanwhile.
        """
        if self._link.fileno() < 0 or not module_of(argv):
            return False
        return module_of(argv) in self._heavy or self._has_loaded()

    def _has_loaded(self) -> bool:
        if not self._loaded and select.select([self._link], [], [], 0)[0]:
            self._loaded = bool(self._receive())
        return self._loaded

    async def start(self, argv: tuple[str, ...], env: dict[str, str], output: int) -> int:
        """Forks a process that writes to the file `output`, and returns its pid. Raises ForkServerError."""
        async with self._turn:
            self._check_open()
            loop = asyncio.get_running_loop()
            try:
                while not self._has_loaded():
                    await self._readable(loop, self._until - time.monotonic(), "to import the libraries")
                self._ask(argv, env, (output, output))
                await self._readable(loop, _FORKED_S, f"to fork {module_of(argv)}")
                return self._forked()
            except asyncio.CancelledError:
                self.close()
                raise

    def start_and_wait(
        self,
        argv: tuple[str, ...],
        env: dict[str, str],
        files: tuple[int, int],
        is_readable: Callable[[int, float], bool] | None = None,
    ) -> int:
        """The same for a caller without an event loop; `files`: of stdout and of stderr.

        `is_readable(descriptor, seconds)` waits in place of `select`; False at the deadline.
        """
        is_readable = is_readable or _is_readable
        self._check_open()
        while not self._has_loaded():
            self._wait_readable(self._until - time.monotonic(), "to import the libraries", is_readable)
        self._ask(argv, env, files)
        self._wait_readable(_FORKED_S, f"to fork {module_of(argv)}", is_readable)
        return self._forked()

    def _check_open(self) -> None:
        """Raises ForkServerError once the server is gone: one who waited for the turn may find it so."""
        if self._link.fileno() < 0:
            raise ForkServerError("it has ended")

    def close(self) -> None:
        """Ends the server; its processes live on, but for one that was asked for and not yet returned."""
        if self._link.fileno() < 0:
            return
        # From here on no process can report itself; what does not report ends.
        self._link.shutdown(socket.SHUT_RDWR)
        packet = self._link.recv(LONGEST) if self._asked else b""
        if packet:
            pid = int(json.loads(packet)["pid"])
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        _adopt_orphans(False)
        self._link.close()
        self._errors.close()
        try:
            # Once it serves, it ends by itself, with no fork half done.
            self._process.wait(_ENDED_S if self._loaded else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def _ask(self, argv: tuple[str, ...], env: dict[str, str], files: tuple[int, int]) -> None:
        packet = ForkRequest(argv, env).encode()
        try:
            if len(packet) > LONGEST:
                raise ForkServerError(f"an environment of {len(packet)} bytes")
            # Only now: a subreaper has to wait for all orphans of its services.
            _adopt_orphans(True)
            self._asked = True
            socket.send_fds(self._link, [packet], files)
        except OSError as error:
            self._give_up(str(error))

    def _forked(self) -> int:
        pid = int(json.loads(self._receive())["pid"])
        self._asked = False
        _adopt_orphans(False)
        return pid

    def _receive(self) -> bytes:
        try:
            packet = self._link.recv(LONGEST)
        except OSError as error:
            self._give_up(str(error))
        if not packet:
            self._give_up("it has ended")
        return packet

    async def _readable(self, loop: asyncio.AbstractEventLoop, seconds: float, what: str) -> None:
        ready = asyncio.Event()
        loop.add_reader(self._link, ready.set)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await ready.wait()
        except TimeoutError:
            self._give_up(f"it had {seconds:.0f} s {what}")
        finally:
            loop.remove_reader(self._link)

    def _wait_readable(self, seconds: float, what: str, is_readable: Callable[[int, float], bool]) -> None:
        if not is_readable(self._link.fileno(), max(0.0, seconds)):
            self._give_up(f"it had {seconds:.0f} s {what}")

    def _give_up(self, reason: str) -> NoReturn:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        self._trouble = f"the fork server: {reason}" + (f": {said[-1]}" if said else "")
        raise ForkServerError(self._trouble)

    def take_trouble(self) -> str:
        """Why it is gone, once; empty if it is not, or if that has been taken."""
        trouble, self._trouble = self._trouble, ""
        return trouble


def execute_server(link: int, errors: int, modules: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts the server's process, which serves this one on the socket `link` and writes to the file `errors`."""
    return subprocess.Popen(
        command_line(link, os.getpid(), modules),
        env=env,
        pass_fds=(link,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def command_line(link: int, parent: int, modules: Sequence[str]) -> tuple[str, ...]:
    """That of the server of the process `parent`."""
    return (sys.executable, "-P", "-m", str(__package__), str(link), str(parent), *modules)


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _adopt_orphans(on: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def can_fork() -> bool:
    """Whether this system has what it takes: Linux 5.3, and a sandbox that does not forbid the call."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
