"""One form for the calls in messages and for the schemas of tools, whatever form a data set has them in. Pure.

A template writes the arguments of a call with `tojson` if they are an object, and as they stand if they are text. The
same call would get other tokens in another form, so arguments are an object before any template reads them.
"""

import json
from collections.abc import Mapping, Sequence

from headrace.services.environment.child.frames import Json
from headrace.wire.errors import DataError


def with_calls_in_form(messages: Sequence[Mapping[str, object]]) -> list[Json]:
    """The messages, each call of a tool as `{"type": "function", "function": {"name": ..., "arguments": {...}}}`.

    Arguments may be given as JSON text, and a call without the wrapper `function`. Messages without calls stay as they
    are. Raises DataError naming message and call.
    """
    return [_in_form(message, number) for number, message in enumerate(messages, start=1)]


def tools_of(value: object) -> tuple[Json, ...]:
    """The schemas in a list, or in JSON text of one, in the form of OpenAI's `tools`: a bare function is wrapped.

    Raises DataError.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError as error:
            raise DataError(f"the tools are text that is not valid JSON: {error}") from None
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DataError("the tools must be a list of schemas, or JSON text of one")
    return tuple(_tool(one, number) for number, one in enumerate(value, start=1))


def _tool(one: object, number: int) -> Json:
    given = one if isinstance(one, dict) else {}
    function = given.get("function", given)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(
            f'tool {number} has not the form {{"type": "function", "function": {{"name": ..., "parameters": ...}}}}'
        )
    return given if function is not given else {"type": "function", "function": given}


def without_absent(value: object) -> object:
    """The value without the keys that hold null: a columnar file gives each object the keys of all rows."""
    if isinstance(value, dict):
        return {key: without_absent(inner) for key, inner in value.items() if inner is not None}
    return [without_absent(inner) for inner in value] if isinstance(value, list) else value


def _in_form(message: Mapping[str, object], number: int) -> Json:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    if not isinstance(calls, list):
        raise DataError(f'message {number}: "tool_calls" must be a list')
    found = [_call(call, f"message {number}, call {place}") for place, call in enumerate(calls, start=1)]
    content = message.get("content")
    return {**message, "content": "" if content is None else content, "tool_calls": found}


def _call(call: object, where: str) -> Json:
    given = call if isinstance(call, dict) else {}
    function = given.get("function", given)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f'{where}: give {{"type": "function", "function": {{"name": ..., "arguments": {{...}}}}}}')
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise DataError(f'{where}: "arguments" are text that is not valid JSON: {error}') from None
    if not isinstance(arguments or {}, dict):
        raise DataError(f'{where}: "arguments" must be an object')
    kept = {"id": given["id"]} if "id" in given else {}
    return {**kept, "type": "function", "function": {"name": function["name"], "arguments": arguments or {}}}
