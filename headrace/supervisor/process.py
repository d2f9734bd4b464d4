"""One child process with its own log and process group, which dies with the supervisor."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from headrace.supervisor.fork_server.adopted import AdoptedProcess
from headrace.supervisor.fork_server.client import ForkServer, ForkServerError
from headrace.wire.errors import DiskError, WaitTimeoutError
from headrace.wire.host.disk_fault import writing
from headrace.wire.process.lifecycle import die_with_parent, wait_for
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_OF_EVERY_LINE = frozenset({"event", "level", "timestamp", "run_id", "service", "instance", "logger_name", "logger"})
"""Fields of a structured log line that do not describe the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """How to start one process and how to see that it is ready."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    grpc_port: int = 0
    grpc_socket: Path | None = None
    """Where it serves gRPC if it has no port for it."""
    http_port: int = 0
    """Port of `/readyz`; 0 = readiness is not polled."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further fields of the pid file."""
    fork_server: ForkServer | None = None
    """Forks the process where that is faster than its own start."""


class ServiceProcess:
    """One life of a process."""

    def __init__(self, plan: ProcessPlan, process: asyncio.subprocess.Process | AdoptedProcess) -> None:
        self.plan = plan
        self._process = process

    @classmethod
    async def spawn(cls, plan: ProcessPlan, run_dir: Path, notice: Callable[[str], None]) -> "ServiceProcess":
        """Starts it. Must be called on the main thread: the kernel ties the child to the thread that forked it.

        Raises OSError (DiskError) if its log or its pid file cannot be written; nothing runs then.
        """
        path = RunPaths(run_dir).log(plan.name)
        with writing(path):
            log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            process = await _fork(plan, log, notice) or await _execute(plan, log)
        finally:
            os.close(log)
        child = cls(plan, process)
        try:
            child._write_pid_file(run_dir)
        except OSError:
            child.kill()
            await wait_for(child.wait(), 10.0, f"{plan.name} to die")
            raise
        return child

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group's."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative after a signal."""
        return self._process.returncode

    async def wait(self) -> int:
        """Waits for its end and returns the exit status."""
        return await self._process.wait()

    async def terminate(self, grace_s: float) -> None:
        """Sends SIGTERM, and after the grace or its exit SIGKILL to what is left of its process group."""
        self._signal(signal.SIGTERM)
        try:
            await wait_for(self.wait(), grace_s, f"{self.plan.name} to stop")
        except WaitTimeoutError:
            pass
        finally:
            self.kill()
        await wait_for(self.wait(), 10.0, f"{self.plan.name} to die")

    def kill(self) -> None:
        """Sends SIGKILL to the whole process group, even if its leader is dead."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _write_pid_file(self, run_dir: Path) -> None:
        content = {
            "pid": self.pid,
            "grpc_port": self.plan.grpc_port,
            "grpc_socket": str(self.plan.grpc_socket or ""),
            "http_port": self.plan.http_port,
            "forked": isinstance(self._process, AdoptedProcess),
            **self.plan.extra,
        }
        # After a crash of the machine its process is gone too.
        atomic.write_text(RunPaths(run_dir).process(self.plan.name), json.dumps(content) + "\n", durable=False)


async def _execute(plan: ProcessPlan, log: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *plan.argv,
        env=plan.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Ctrl-C in the terminal is for the supervisor, which decides the order in which processes stop.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


async def _fork(plan: ProcessPlan, log: int, notice: Callable[[str], None]) -> AdoptedProcess | None:
    """Starts it through the fork server; None where there is none, it would take longer, or it has failed."""
    server = plan.fork_server
    if server is None:
        return None
    try:
        if server.serves(plan.argv):
            return AdoptedProcess(await server.start(plan.argv, plan.env, log))
    except ForkServerError as error:
        notice(f"{plan.name} starts on its own: {error}")
        server.take_trouble()
    if trouble := server.take_trouble():
        # It failed while the run was prepared.
        notice(f"{plan.name} starts on its own: {trouble}")
    return None


def log_tail(path: Path, lines: int = 8) -> str:
    """The end of a log, for an error message; repeated lines are shown once, with their count."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 20_000))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    found = [_readable(line) for line in text.splitlines()[-lines:]]
    counted = [(line, len(list(same))) for line, same in groupby(found)]
    return "\n".join(line + (f" ({times} times)" if times > 1 else "") for line, times in counted)


def fault_in(path: Path) -> str:
    """The fault of a disk with which a process ended, from its log; empty if it ended otherwise."""
    _, found, fault = log_tail(path, 1).partition(f"stopped: {DiskError.__name__}: ")
    return fault if found else ""


def _readable(line: str) -> str:
    """Shortens a structured log line to its error, a traceback's end or its own fields; returns others unchanged."""
    try:
        fields = json.loads(line)
        event = fields["event"]
        error = fields.get("error") or fields.get("exception", "").strip().rpartition("\n")[2]
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    if error:
        return f"{event}: {error}"
    own = [f"{name}={value}" for name, value in fields.items() if name not in _OF_EVERY_LINE]
    return " ".join([str(event), *own])
