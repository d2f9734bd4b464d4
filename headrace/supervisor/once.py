"""Runs a child for one job: the data preparation, the demo's supervised stage."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import headrace
from headrace.wire.environment import NAMES
from headrace.wire.errors import HeadraceError, WaitTimeoutError
from headrace.wire.lifecycle import die_with_parent


class ChildFailedError(HeadraceError):
    """The child exited with a status other than 0."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what} failed (status {status}): {message}")
        self.status = status
        self.message = message


def child_environment(inherited: dict[str, str], *, threads: int, device: str = "cpu") -> dict[str, str]:
    """Environment of every child: quiet thread pools, unbuffered logs, our packages on its path.

    `device`: that of the run.
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


def run_once(what: str, argv: Sequence[str], *, env: dict[str, str], log: Path | None, timeout_s: float) -> str:
    """Runs a command to its end and returns its stdout (empty if it went to `log`).

    Raises ChildFailedError with its stderr, or WaitTimeoutError; the child is dead then.
    """
    output = log.open("ab") if log else subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if log else subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    finally:
        if not isinstance(output, int):
            output.close()
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise WaitTimeoutError(what, timeout_s) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
    if process.returncode != 0:
        message = (err or b"").decode(errors="replace").strip() or f"see {log}"
        raise ChildFailedError(what, process.returncode, message)
    return (out or b"").decode()
