"""Reads calls of tools in what the policy said. Pure.

The form is Hermes' and Qwen's, which most chat templates with tools teach: `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`, any number of them. Other text is not a call: the environment gets the text, and decides.
"""

import json
import re
from dataclasses import dataclass, field

from headrace.services.environment.child.frames import Json

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidCalls:
    """The calls in a message, and those that cannot be read."""

    calls: tuple[Json, ...] = ()
    """`name` and `arguments` (an object) of each."""
    malformed: tuple[str, ...] = field(default=())
    """Why each of the others is none, for the policy to read."""


def read_calls(text: str) -> SaidCalls:
    """The calls in a text, in order."""
    calls, malformed = [], []
    for number, found in enumerate(_CALL.findall(text)):
        try:
            calls.append(_call(found))
        except ValueError as error:
            malformed.append(f"Error: call {number + 1} is no call of a tool: {error}")
    return SaidCalls(calls=tuple(calls), malformed=tuple(malformed))


def _call(text: str) -> Json:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError('give {"name": ..., "arguments": {...}}')
    return checked_call(found.get("name"), found.get("arguments", {}))


def checked_call(name: object, arguments: object) -> Json:
    """A call with its `name` and `arguments`. Raises ValueError, for the policy to read, for what JSON cannot hold."""
    if not isinstance(name, str):
        raise ValueError('give {"name": ..., "arguments": {...}}')
    if not isinstance(arguments, dict):
        raise ValueError(f'"arguments" of {name} must be an object')
    try:
        json.dumps(arguments, allow_nan=False)
    except ValueError:
        raise ValueError(f'"arguments" of {name} hold a number that JSON has not, such as NaN') from None
    return {"name": name, "arguments": arguments}
