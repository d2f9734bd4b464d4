"""A child's process: loads the user's code under limits, and answers one call after the other."""

import argparse
import asyncio
import inspect
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from headrace.services.environment.child.answers import allow_cpu, answer_of
from headrace.services.environment.child.environment import HostedEnvironment
from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.loading import LoadError, import_named, place_of
from headrace.wire.host.frames import CLOSED, encode, keep_from_forks, receive
from headrace.wire.process.lifecycle import die_with_parent

TRL = "trl:"
"""Prefix of an environment that is a factory of TRL's."""


def main() -> int:
    """Answers until the worker closes the socket."""
    asked = _arguments()
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if asked.memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (asked.memory_mib << 20, asked.memory_mib << 20))
    with socket.socket(fileno=asked.fd) as link:
        keep_from_forks(link)
        try:
            hosted = _loaded(asked)
        except LoadError as error:
            link.sendall(encode({"refused": str(error)}))
            return 2
        link.sendall(encode({"ready": True, "tools": hosted.schemas}))
        with asyncio.Runner() as runner:
            try:
                while (frame := receive(link)) is not None:
                    answer = runner.run(_answered(hosted, frame, asked.cpu_s))
                    link.sendall(encode({**answer, "key": frame["key"]}))
            except OSError:
                os._exit(CLOSED)  # Other descriptors may be gone with the socket: nothing can be tidied up.
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--environment", default="")
    parser.add_argument("--tool", action="append", default=[])
    parser.add_argument("--reward", action="append", default=[])
    parser.add_argument("--path", type=Path)
    parser.add_argument("--memory-mib", type=int, default=0)
    parser.add_argument("--cpu-s", type=float, default=0.0)
    parser.add_argument("--max-result-chars", type=int, required=True)
    return parser.parse_args()


def _loaded(asked: argparse.Namespace) -> HostedEnvironment:
    functions = [import_named(one, asked.path) for one in asked.tool]
    if asked.environment.startswith(TRL):
        return _loaded_of_trl(asked, functions)
    instance = None
    if asked.environment:
        made = import_named(asked.environment, asked.path)
        try:
            instance = made() if inspect.isclass(made) else made
        except Exception as error:
            raise LoadError(f"{asked.environment}(): {type(error).__name__}: {error} ({place_of(error)})") from error
    return HostedEnvironment(instance, functions, max_result_chars=asked.max_result_chars)


def _loaded_of_trl(asked: argparse.Namespace, functions: list[Callable[..., object]]) -> HostedEnvironment:
    # Its schemas are those of transformers, an import that other environments are spared.
    from headrace.services.environment.child.trl import FORM, TrlEnvironment

    target = asked.environment.removeprefix(TRL)
    factory = import_named(target, asked.path)
    rewards = [import_named(one, asked.path) for one in asked.reward]
    try:
        instance = TrlEnvironment(factory, functions, rewards)
        for tool in instance.every_tool:
            FORM.make(tool)
    except LoadError as error:
        raise LoadError(f"{target}: {error}") from error
    except Exception as error:
        raise LoadError(f"{target}(): {type(error).__name__}: {error} ({place_of(error)})") from error
    return HostedEnvironment(instance, (), max_result_chars=asked.max_result_chars, form=FORM)


async def _answered(hosted: HostedEnvironment, frame: Json, cpu_s: float) -> Json:
    name, fields = frame["call"], frame["fields"]
    assert isinstance(fields, dict)
    if name == "reset":
        allow_cpu(cpu_s)
    calls: Mapping[object, Callable[..., Awaitable[object]]] = {
        "reset": hosted.reset,
        "step": hosted.step,
        "reward": hosted.reward,
    }
    return await answer_of(lambda: calls[name](**fields))


if __name__ == "__main__":
    sys.exit(main())
