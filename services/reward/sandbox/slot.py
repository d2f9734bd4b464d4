"""One sandbox, driven from the outside: tests go in as files, outcomes come out."""

import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from headrace.services.reward.sandbox.bubblewrap import INSIDE, command
from headrace.services.reward.sandbox.cpu import waited_s
from headrace.services.reward.sandbox.errors import SandboxError, SandboxStartError, StarvedError
from headrace.services.reward.sandbox.inside import server
from headrace.services.reward.sandbox.inside.confine import Limits
from headrace.services.reward.sandbox.outcome import Ending, Program, SandboxOutcome

_START_S = 20.0
_GRACE_S = 5.0
"""Beyond a test's own time: the fork server has that to clean up and to answer. It is heard from in each such span."""
_END_S = 5.0
_NOTES_BYTES = 2000
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_ENDINGS: dict[bytes, Ending] = {server.EXITED: "exit", server.SIGNALLED: "signal", server.TIMED_OUT: "time"}


class Slot:
    """A sandbox that runs one program at a time. Not thread-safe; `end` alone may come from another thread."""

    def __init__(self, number: int, limits: Limits, packages: Path | None) -> None:
        self._number, self._limits, self._packages = number, limits, packages
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Process id of bubblewrap; None = it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts it. Raises SandboxStartError with the output of bubblewrap, ConfigError if that is not installed."""
        self.kill()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack, theirs, open(os.memfd_create("log"), "w+b") as log:
            stack.callback(self.kill)
            self._process = self._launch(theirs, log)
            theirs.close()
            if self._hear(self._control, _START_S)[0] != server.READY:
                self.kill()  # Whatever it wrote is in the log then.
                log.seek(0)
                said = log.read().decode(errors="replace").strip()[-_NOTES_BYTES:] or "no output"
                raise SandboxStartError(f"the sandbox does not start: {said}")
            stack.pop_all()

    def _launch(self, control: socket.socket, log: BinaryIO) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            sources = {path.name: stack.enter_context(sealed(path.read_bytes())) for path in INSIDE.glob("*.py")}
            return subprocess.Popen(
                command(self._limits, self._packages, slot=self._number, control=control.fileno(), sources=sources),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[control.fileno(), *sources.values()],
                env={},
            )

    def run(self, program: int, given: bytes) -> SandboxOutcome:
        """Runs one test; `program` is a descriptor (`sealed`). After a SandboxError but StarvedError, it is dead."""
        if self._control is None:
            raise SandboxError("the sandbox is not running")
        with sealed(given) as stdin, _empty("stdout") as stdout, _empty("stderr") as stderr:
            try:
                socket.send_fds(self._control, [b"test"], [stdin, stdout, stderr, program])
            except OSError as error:
                self.kill()
                raise SandboxError(f"the sandbox has gone: {error}") from error
            ending, code, wall_s, cpu_s, waiting_s = server.REPLY.unpack(self._answer())
            if ending == server.STARVED:
                raise StarvedError(
                    f"the machine is too busy: a test was on a CPU for {cpu_s:.2f} s of {wall_s:.1f} s, and waited for "
                    f"one for {waiting_s:.1f} s: lower reward.processes, or give it more CPUs"
                )
            return SandboxOutcome(
                ending=_ENDINGS[ending],
                code=code,
                output=_read(stdout, self._limits.output_bytes),
                notes=_end(stderr),
                wall_s=wall_s,
                cpu_s=cpu_s,
                waited_s=waiting_s,
            )

    def _answer(self) -> bytes:
        """The reply to a test; what the fork server asks before is answered. Raises SandboxError."""
        control = self._control
        while control is not None:
            message, files = self._hear(control, self._limits.timeout_s + _GRACE_S)
            for file in files:
                try:
                    control.send(server.WAITED.pack(waited_s(file)))
                except OSError:  # It has gone, as the next message shows.
                    continue
                finally:
                    os.close(file)
            if len(message) == server.REPLY.size:
                return message
            if message != server.ASKS:
                break
        self.kill()
        raise SandboxError("the sandbox died, or hung, under a test")

    def end(self) -> None:
        """Kills the sandbox from another thread: the one that waits for it gets a SandboxError and cleans up."""
        process = self._process
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """Ends the sandbox and all in it, and waits for that; may be called twice."""
        process, control, self._process, self._control = self._process, self._control, None, None
        if process is not None:
            process.kill()
            process.wait(_END_S)
        if control is not None:
            control.close()

    @staticmethod
    def _hear(control: socket.socket, seconds: float) -> tuple[bytes, list[int]]:
        """One message and its descriptors; empty when the fork server has gone or does not answer."""
        control.settimeout(seconds)
        try:
            message, files, _, _ = socket.recv_fds(control, 64, 1)
            return message, files
        except OSError:
            return b"", []


def text_of(program: Program) -> bytes:
    """A program as the fork server's children read it, below a line with the function's name and, if it is wanted, the
    word `prelude`; the line of a script is empty.
    """
    head = "" if program.function is None else program.function + " prelude" * program.prelude
    return f"{head}\n{program.source}".encode(errors="replace")


@contextmanager
def sealed(content: bytes) -> Iterator[int]:
    """The descriptor of a sealed file in memory, which cannot be changed."""
    fd = os.memfd_create("given", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _empty(name: str) -> Iterator[int]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    at = 0
    while at < limit and (chunk := os.pread(fd, limit - at, at)):
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def _end(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, _NOTES_BYTES, max(size - _NOTES_BYTES, 0)).decode(errors="replace").strip()
