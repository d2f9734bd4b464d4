"""The server as a child process: launched with a deadline, killed with its whole process group."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from pathlib import Path
from typing import BinaryIO

from headrace.services.rollout.engines.sglang import guard
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.flags import LaunchPlan, environment, server_config
from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.layout import RunPaths

_POLL_S = 0.2
_READY_S = 2.0
_REAP_S = 10.0
_PORTS = range(20_000, 32_000)
"""Below the ephemeral ports, which start at 32768 on Linux."""


class ServerProcess:
    """A launched server, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def launch(
        cls, plan: LaunchPlan, python: Path, *, run_dir: Path, name: str, lock: GpuLock | None = None
    ) -> "ServerProcess":
        """Starts the server with the log RUN/logs/NAME.log and the config RUN/run/NAME.yaml (both hold its keys).

        The guard inherits the lock of a shared GPU: if this process dies, the lock is released when the server is gone.
        """
        config, log = RunPaths(run_dir).processes / f"{name}.yaml", RunPaths(run_dir).log(name)
        for path in (config, log):
            path.parent.mkdir(parents=True, exist_ok=True)
        with _private(config, os.O_TRUNC) as file:
            # JSON is YAML.
            file.write(json.dumps(server_config(plan), indent=1).encode())
        command = (python, "-m", "sglang.launch_server", "--config", config, *plan.extra_args)
        variables = (f"{key}={value}" for key, value in environment(plan).items())
        with _private(log, os.O_APPEND) as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guard.__file__),
                *("env", *variables, *map(str, command)),
                stdin=asyncio.subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
                pass_fds=(lock.file,) if lock is not None else (),
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Id of the process group."""
        return self._process.pid

    async def wait(self) -> str:
        """Waits until the server has ended; returns the last lines of its log."""
        await self._process.wait()
        return _last_words(self._log)

    def kill(self) -> None:
        """Sends SIGKILL to the whole process group. Idempotent."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills the server and waits until it has exited."""
        self.kill()
        await wait_for(self._process.wait(), _REAP_S, "the SGLang server to die")


async def until_ready(client: SGLangClient, process: ServerProcess | None, timeout_s: float) -> None:
    """Waits until the server is ready; raises TransientError if it exits before, or is not ready in time.

    An attached server may have been left paused by an earlier process of this replica: it is resumed.
    """
    ended = asyncio.ensure_future(process.wait()) if process is not None else None
    try:
        async with asyncio.timeout(timeout_s):
            while not await client.is_ready(_READY_S):
                if ended is not None and ended.done():
                    raise TransientError(f"the SGLang server ended while it started: {ended.result()}")
                if process is None:
                    with contextlib.suppress(TransientError):
                        await client.resume(_READY_S)
                await asyncio.sleep(_POLL_S)
    except TimeoutError as error:
        waited = WaitTimeoutError(f"SGLang at {client.url} to be ready", timeout_s)
        # A TransientError, so that the supervisor may retry.
        raise TransientError(f"{waited} (rollout.sglang.start_timeout_s)") from error
    finally:
        if ended is not None:
            ended.cancel()


def free_port(host: str) -> int:
    """A port that is free now; a server that loses the race for it must be restarted. Raises TransientError.

    The server binds it only after its model is loaded, so it must not be a port that an outgoing connection can get.
    """
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise TransientError(f"no free port between {_PORTS.start} and {_PORTS.stop} on {host}; set rollout.sglang.port")


def _private(path: Path, mode: int) -> BinaryIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def _last_words(log: Path, lines: int = 3) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            words = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in words[-lines:])
