"""One life of a child: started, asked, ended."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.services.reward.workers.errors import JobError
from headrace.services.reward.workers.frames import CLOSED, ForeignFrameError, encode, is_quiet, read
from headrace.services.reward.workers.output import ChildOutput
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.lifecycle import wait_for
from headrace.wire.users_code import Bug

_END_S = 10.0
_CLOSED = "closed the connection to its service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child is to be."""

    target: str
    """module:factory"""
    arguments: Mapping[str, object] = field(default_factory=dict)
    path: str | None = None
    """Comes last on its import path."""
    memory_mb: int | None = None
    """Address space that it may add once it has loaded."""


class DiedAtStartError(ConfigError):
    """It died while it loaded, without a word: another try may go better."""


class WorkerProcess:
    """Answers jobs, one at a time."""

    def __init__(
        self, connection: socket.socket, process: asyncio.subprocess.Process, what: str, output: ChildOutput
    ) -> None:
        self._connection, self._process, self._what, self._output = connection, process, what, output

    @property
    def pid(self) -> int:
        """Its process id, and its process group's."""
        return self._process.pid

    def cpu_s(self) -> float | None:
        """Processor time that it has used; None where the system does not report it."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def is_ready(self) -> bool:
        """Whether it lives, and waits for a job."""
        return is_quiet(self._connection)

    async def ask(self, job: bytes, key: str) -> dict[str, object]:
        """The result; raises JobError, and ConnectionError if it dies. The caller bounds it.

        Raises ForeignFrameError unless the answer has the job's `key`: the function can write into the socket, also
        while it runs for another sample.
        """
        await asyncio.get_running_loop().sock_sendall(self._connection, job)
        answer = await read(self._connection)
        if answer.get("key") != key:
            raise ForeignFrameError("what came answers no job, or another one")
        if "error" in answer:
            bug = answer.get("bug")
            raise JobError(answer["error"], answer["message"], Bug(**bug) if bug else None)
        result: dict[str, object] = answer["result"]
        return result

    @classmethod
    async def launch(cls, order: Order, what: str, deadline_s: float) -> "WorkerProcess":
        """Starts it and waits until it has loaded; raises ConfigError with its own words, or DiedAtStartError.

        Must be called on the main thread: the kernel ties the child to the thread that started it.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command = (sys.executable, "-P", "-u", "-m", "headrace.services.reward.workers.child")
        output = ChildOutput(what)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(*command, str(theirs.fileno()), str(os.getpid())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output.pipe.descriptor,
                    stderr=output.pipe.descriptor,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            output.close()
            raise
        finally:
            output.pipe.handed_over()
        child = cls(ours, process, what, output)
        is_loaded = False
        try:
            await output.copy()
            await wait_for(child._load(order), deadline_s, f"{what} to load")
            is_loaded = True
        except WaitTimeoutError as error:
            raise ConfigError(f"{what}: it has not loaded within {deadline_s:g} s") from error
        finally:
            if not is_loaded:
                await child.end()
        return child

    async def _load(self, order: Order) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection, encode(asdict(order)))
            answer = await read(self._connection)
        except ConnectionError as error:
            raise DiedAtStartError(f"{self._what}: its process {await self.end()} while it loaded") from error
        if "error" in answer:
            raise ConfigError(f"{self._what}: {answer['error']}")

    async def end(self, grace_s: float = 0.0) -> str:
        """Closes its socket, on which it exits, and kills its process group, after the grace; returns how it ended.

        Idempotent.
        """
        self._connection.close()
        words = ""
        if grace_s:
            with suppress(WaitTimeoutError):
                await wait_for(self._process.wait(), grace_s, f"{self._what} to leave")
            words = _CLOSED if self._process.returncode is None else ""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        status = await wait_for(self._process.wait(), _END_S, f"{self._what} to die")
        await self._output.end()
        return words or ended(status)


def ended(status: int) -> str:
    """How a process ended, for people."""
    if status == CLOSED:
        return _CLOSED
    if status >= 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name
    return f"was killed by {name}" + (" (out of memory?)" if status == -signal.SIGKILL else "")
