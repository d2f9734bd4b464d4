"""Runs a child for one job: the data preparation, the demo's supervised stage."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import headrace
from headrace.supervisor.fork_server.client import ForkServer, ForkServerError
from headrace.wire.errors import HeadraceError, WaitTimeoutError
from headrace.wire.process.environment import NAMES
from headrace.wire.process.lifecycle import die_with_parent

FIRST_S = 5.0
"""A wait that ends sooner is silent."""
EVERY_S = 10.0


class ChildFailedError(HeadraceError):
    """The child exited with a status other than 0."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what} failed (status {status}): {message}")
        self.status = status
        self.message = message


class Patience:
    """One wait, from its construction on. The waiting loop calls `look` at least after each `slice_s`."""

    def __init__(self, what: str, progress: Callable[[], str] | None = None) -> None:
        """`what`: that which is waited for. `progress`: how far it is, in words; empty if that is not known."""
        self._what, self._progress = what, progress
        self._began, self._next = time.monotonic(), FIRST_S

    def slice_s(self, left_s: float) -> float:
        """Seconds to wait before the next look; at most `left_s`."""
        return max(0.0, min(left_s, self._began + self._next - time.monotonic()))

    def look(self) -> None:
        """Writes a line if one is due."""
        waited = time.monotonic() - self._began
        if waited < self._next:
            return
        self._next = waited + EVERY_S
        progress = self._progress() if self._progress else ""
        line = f"{self._what}: {waited:.0f} s so far" + (f", {progress}" if progress else "")
        with contextlib.suppress(OSError):  # Output that leads nowhere ends no preparation.
            sys.stderr.write(line.encode("utf-8", "replace").decode() + "\n")
            sys.stderr.flush()


def child_environment(inherited: dict[str, str], *, threads: int, device: str = "cpu") -> dict[str, str]:
    """Environment of every child: quiet thread pools, unbuffered logs, our packages on its path.

    `device`: the run's.
    """
    own = {name: value for name, value in inherited.items() if name not in NAMES}
    env = own | {
        # Two spinning pools on two cores cost 16 times the CPU.
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # A child that a user's scorer makes with a `preexec_fn` would crash: https://github.com/grpc/grpc/issues/43055.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        # Every new shape of a product is a compiled kernel of about half a megabyte; a thousand of them would be kept.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": inherited.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128"),
        # glibc gives each thread that allocates a heap of its own, up to eight a core, and returns little of what lies
        # free in them: the orchestrator grew by 2.7 MB in 1,000 steps, and with two heaps by 0.4.
        "MALLOC_ARENA_MAX": inherited.get("MALLOC_ARENA_MAX", "2"),
        # A lost peer is reported by our own log, not by a C++ stack of forty lines.
        "TORCH_CPP_LOG_LEVEL": inherited.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        # DeepSpeed, where it is installed, is imported by others too, and would print how it detects this.
        "DS_ACCELERATOR": inherited.get("DS_ACCELERATOR", device.partition(":")[0]),
    }
    root = Path(headrace.__file__).resolve().parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        # A source tree: `-P` keeps the working directory off the path.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), env.get("PYTHONPATH", "")]))
    return env


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line of one of our modules."""
    return (sys.executable, "-P", "-m", module, *arguments)


@contextlib.contextmanager
def child(
    argv: Sequence[str],
    env: dict[str, str],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    stdin: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child with a process group of its own, which is killed at the end of the block and dies with this process."""
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        # Ctrl-C in the terminal is for this process, which ends its child in order.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        # Also where it has ended: helpers that it forked may live.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def lines_of(process: subprocess.Popen[bytes], what: str, timeout_s: float) -> Iterator[bytes]:
    """Lines of a child's stdout as they come, to its end. Raises WaitTimeoutError where none comes for so long."""
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        if not _is_readable(descriptor, timeout_s, Patience(what)):
            raise WaitTimeoutError(what, timeout_s)
        # Not `readline`: what it has buffered is nothing that `select` sees, and it waits for the end of a line.
        part = os.read(descriptor, 1 << 16)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


def run_once(
    what: str,
    argv: Sequence[str],
    *,
    env: dict[str, str],
    log: Path | None,
    timeout_s: float,
    fork_server: ForkServer | None = None,
    progress: Callable[[], str] | None = None,
) -> str:
    """Runs a command to its end and returns its stdout (empty if it went to `log`). Reports a long wait on stderr.

    Raises ChildFailedError with its stderr, or WaitTimeoutError; the child is dead then. `fork_server`: forks it where
    that is faster. `progress`: how far it is, in words.
    """
    patience = Patience(what, progress)
    if fork_server is not None:
        # The supervisor reports it (`take_trouble`).
        with contextlib.suppress(ForkServerError):
            if fork_server.serves(tuple(argv)):
                return _run_forked(what, tuple(argv), env, log, timeout_s, fork_server, patience)
    errors = subprocess.STDOUT if log else subprocess.PIPE
    with (
        log.open("ab") if log else contextlib.nullcontext(subprocess.PIPE) as output,
        child(argv, env, stdout=output, stderr=errors) as process,
    ):
        out, err = _communicate(process, what, timeout_s, patience)
    if process.returncode != 0:
        message = (err or b"").decode(errors="replace").strip() or f"see {log}"
        raise ChildFailedError(what, process.returncode, message)
    return (out or b"").decode()


def _communicate(
    process: subprocess.Popen[bytes], what: str, timeout_s: float, patience: Patience
) -> tuple[bytes | None, bytes | None]:
    """What it wrote to stdout and stderr. Raises WaitTimeoutError."""
    end = time.monotonic() + timeout_s
    while True:
        left = end - time.monotonic()
        try:
            return process.communicate(timeout=patience.slice_s(left))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                raise WaitTimeoutError(what, timeout_s) from None
            patience.look()


def _run_forked(
    what: str,
    argv: tuple[str, ...],
    env: dict[str, str],
    log: Path | None,
    timeout_s: float,
    server: ForkServer,
    patience: Patience,
) -> str:
    with log.open("ab") if log else tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = (out.fileno(), (out if log else err).fileno())
        pid = server.start_and_wait(argv, env, files, partial(_is_readable, patience=patience))
        pidfd = os.pidfd_open(pid)
        try:
            if not _is_readable(pidfd, timeout_s, patience):
                raise WaitTimeoutError(what, timeout_s)
        finally:
            # What it left in its process group too; the leader keeps its pid until it is waited for.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.close(pidfd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        err.seek(0)
        if status != 0:
            message = err.read().decode(errors="replace").strip() or f"see {log}"
            raise ChildFailedError(what, status, message)
        if log:
            return ""
        out.seek(0)
        return out.read().decode()


def _is_readable(descriptor: int, seconds: float, patience: Patience) -> bool:
    """Waits until a descriptor is readable; False at the deadline."""
    end = time.monotonic() + seconds
    while True:
        left = max(0.0, end - time.monotonic())
        if select.select([descriptor], [], [], patience.slice_s(left))[0]:
            return True
        if time.monotonic() >= end:
            return False
        patience.look()
