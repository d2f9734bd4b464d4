"""The worker's side of a user's function: found, looked at, called, its answer made plain JSON."""

import asyncio
import atexit
import functools
import hashlib
import importlib
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import Parameter
from numbers import Real
from pathlib import Path
from typing import Any, cast

from headrace.wire.errors import ConfigError

Function = Callable[..., object]
_KINDS = {
    int(kind): kind
    for kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}


def find(target: str) -> Function:
    """The function `module:function`; raises ConfigError naming it and the way out."""
    module_name, colon, function_name = target.partition(":")
    if not module_name or not colon or not function_name:
        raise ConfigError(f"{target!r} names no function; write module:function")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{target}: {error}; put the folder of the module into reward.path") from error
    except AttributeError as error:
        raise ConfigError(f"{target}: {error}") from error
    except Exception as error:  # Importing runs the user's code: it may raise anything.
        raise ConfigError(f"{target}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{target} is not a function")
    return cast(Function, function)


def about(function: Function) -> dict[str, Any]:
    """`parameters` as [name, kind, has a default] (None if it has no signature), and `version` of its module."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = None
    else:
        parameters = [[one.name, int(one.kind), one.default is not one.empty] for one in found]
    return {"parameters": parameters, "version": source_version(function)}


def source_version(thing: Function) -> str:
    """Version of the file that defines a function or class: changes with its code. Empty where there is no file."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(thing))
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if path else ""
    except (TypeError, ValueError, OSError):
        return ""


def signature(parameters: Sequence[tuple[str, int, bool]] | None) -> inspect.Signature | None:
    """The signature that `about` reported, as Python's own; None = nothing is known."""
    if parameters is None:
        return None
    return inspect.Signature(
        [
            Parameter(name, _KINDS[kind], default=None if has_default else Parameter.empty)
            for name, kind, has_default in parameters
        ]
    )


def settled(value: object) -> Any:
    """What it returned; an async function's coroutine is run to its end, on the process's one loop."""
    return _runner().run(_awaited(value)) if inspect.isawaitable(value) else value


def plain(value: Any) -> object:
    """A score as JSON has it: truth as 1 or 0, a single number of NumPy or torch as Python's; all else as it is."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return float(value) if isinstance(value, bool) else value


def numbers(values: Mapping[object, object]) -> dict[str, float]:
    """What is shown beside a score: the finite numbers among the values. All else is dropped, never an error."""
    found = {str(name): _number(value) for name, value in values.items()}
    return {name: number for name, number in found.items() if number is not None}


def _number(value: object) -> float | None:
    try:
        given = plain(value)
        number = float(given) if isinstance(given, Real) else math.nan
    except Exception:  # The user's own objects may raise anything, and the score does not depend on them.
        return None
    return number if math.isfinite(number) else None


@functools.cache
def _runner() -> asyncio.Runner:
    """One loop for the process's life: clients that the user's module holds keep their connections on it."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


async def _awaited(value: Awaitable[object]) -> object:
    return await value
