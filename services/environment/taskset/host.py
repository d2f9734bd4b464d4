"""Inside the sandbox: serves one taskset, and plays its tasks one after the other.

The worker speaks to it over a socket: `play` (a task) and `rows` (of the taskset). The policy is
behind a unix socket, to which a port of the sandbox's own leads.
"""

import argparse
import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import ToolsetError

from headrace.services.environment.agent.forward import forward
from headrace.services.environment.agent.requests import MODEL
from headrace.services.environment.child.answers import allow_cpu, answer_of
from headrace.services.environment.child.errors import ResultError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.loading import LoadError, place_of
from headrace.services.environment.taskset.frames import TasksetConfig
from headrace.services.environment.taskset.harness import read_scripts
from headrace.services.environment.taskset.loading import LoadedTaskset, load
from headrace.services.environment.taskset.played import played_trace
from headrace.services.environment.taskset.toolsets import bound_toolset_starts
from headrace.wire.host.frames import encode, read
from headrace.wire.process.lifecycle import die_with_parent

_KEY = "HEADRACE_POLICY_API_KEY"
"""The package hands no variable with such a name on to what it starts."""
_PAGE = 1000
"""Rows of one answer."""
_PR_SET_DUMPABLE = 4


async def main() -> int:
    """Answers until the worker closes the socket."""
    asked = _arguments()
    die_with_parent()
    # A harness with a shell has the same user: it must neither trace this process nor write into it.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if asked.memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (asked.memory_mib << 20, asked.memory_mib << 20))
    bound_toolset_starts()
    link, loop = socket.socket(fileno=asked.fd), asyncio.get_running_loop()
    link.setblocking(False)
    async with contextlib.AsyncExitStack() as stack:
        try:
            scripts = read_scripts(asked.harness_folder)
            if scripts is None:
                raise LoadError(f"{asked.harness_folder} has no scripts of the harness")
            loaded = load(TasksetConfig(**asked.given), asked.path, scripts)
            port = await _served(stack, loaded, asked)
        except LoadError as error:
            await loop.sock_sendall(link, encode({"refused": str(error)}))
            return 2
        hello = {"ready": True, "tools": [], "executes_code": loaded.executes_code}
        await loop.sock_sendall(link, encode(hello))
        with contextlib.suppress(ConnectionError):  # The worker has closed the socket.
            while True:
                frame = await read(link)
                answer = await _answered(frame, loaded, port, asked.cpu_s)
                await loop.sock_sendall(link, encode({**answer, "key": frame["key"]}))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--given", type=json.loads, required=True)
    parser.add_argument("--path", type=Path)
    parser.add_argument("--socket", default="")
    parser.add_argument("--harness-folder", type=Path, required=True)
    parser.add_argument("--memory-mib", type=int, default=0)
    parser.add_argument("--cpu-s", type=float, default=0.0)
    return parser.parse_args()


async def _served(stack: contextlib.AsyncExitStack, loaded: LoadedTaskset, asked: argparse.Namespace) -> int:
    """Starts what the taskset shares among its episodes, and the port of the policy; 0 = none. Raises LoadError."""
    if not asked.socket:
        return 0  # Rows alone are read.
    server = await asyncio.start_server(lambda *streams: forward(asked.socket, *streams), "127.0.0.1", 0)
    stack.push_async_callback(server.wait_closed)
    stack.callback(server.close)
    try:
        await stack.enter_async_context(loaded.env.serving())
    except ToolsetError as error:
        raise LoadError(f"verifiers:{asked.given['taskset']}: {error}") from error
    except Exception as error:
        raise LoadError(
            f"verifiers:{asked.given['taskset']}: {type(error).__name__}: {error} ({place_of(error)})"
        ) from error
    return int(server.sockets[0].getsockname()[1])


async def _answered(frame: Json, loaded: LoadedTaskset, port: int, cpu_s: float) -> Json:
    fields = frame["fields"]
    assert isinstance(fields, dict)
    calls: dict[object, Callable[..., Awaitable[object]]] = {"play": _play, "rows": _rows}
    if frame["call"] == "play":
        allow_cpu(cpu_s)
    return await answer_of(lambda: calls[frame["call"]](loaded, port, **fields))


async def _play(
    loaded: LoadedTaskset,
    port: int,
    *,
    task: Json,
    temperature: float,
    max_tokens: int,
    key: str,
) -> object:
    """Plays a task to its end."""
    os.environ[_KEY] = key
    client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var=_KEY)
    sampling = vf.SamplingConfig(temperature=temperature, max_tokens=max_tokens)
    env = loaded.env
    env.config.agent.max_output_tokens = max_tokens
    (slot,) = env.slots(loaded.task(task))
    return played_trace(await env.run_slot(slot, ModelContext(client=client, model=MODEL, sampling=sampling)))


async def _rows(loaded: LoadedTaskset, port: int, *, first: int, most: int) -> object:
    """The data of a page of tasks, up to the first `most` in all; 0 = of all."""
    taskset = loaded.env.taskset
    if not most and not taskset.bounded:
        raise ResultError(f"{type(taskset).__name__} has no end: set data.limit to the number of its tasks to play")
    if not first:
        loaded.tasks = iter(taskset)
    end = min(most or first + _PAGE, first + _PAGE)
    return [one.data.model_dump(mode="json") for one in itertools.islice(loaded.tasks, max(end - first, 0))]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
