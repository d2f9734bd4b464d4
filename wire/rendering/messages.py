"""One form for messages, their calls and the schemas of tools, converted from any form in data sets. Pure.

A template writes the arguments of a call with `tojson` if they are an object, and as they stand if they are text. The
same call would get other tokens in another form, so arguments are an object before any template reads them.
"""

import json
from collections.abc import Mapping, Sequence

from headrace.wire.errors import DataError

Json = dict[str, object]
_MEDIA = ("images", "image", "videos", "video", "audios", "audio")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def in_form(messages: Sequence[object]) -> list[Json]:
    """The messages in the form that every chat template reads: `content` is text, calls of tools are as OpenAI's.

    Parts of text are joined. Calls become `{"type": "function", "function": {"name": ..., "arguments": {...}}}`:
    arguments may be given as JSON text, and a call without the wrapper `function`. Keys that hold null are left out.
    Raises DataError naming message and part or call, for images and sounds too: the models read text alone.
    """
    return [_in_form(message, f"message {number}") for number, message in enumerate(messages, start=1)]


def media_in(values: Mapping[str, object]) -> str:
    """The first key that holds what is not text, by the names that TRL's and verl's data have; empty without one."""
    return next((name for name in _MEDIA if values.get(name) not in (None, "", [])), "")


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


def _in_form(message: object, where: str) -> Json:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise DataError(f'{where}: a message is an object with a "role" and a "content"')
    found = {key: value for key, value in message.items() if value is not None}
    if media := media_in(found):
        raise DataError(f'{where} has "{media}", but the model reads text alone')
    if found.get("function_call"):
        raise DataError(f'{where} has "function_call", the old form of calls: give "tool_calls"')
    calls = found.get("tool_calls", [])
    if not isinstance(calls, list):
        raise DataError(f'{where}: "tool_calls" must be a list')
    if calls:
        found["tool_calls"] = [_call(call, f"{where}, call {place}") for place, call in enumerate(calls, start=1)]
    # A message that only calls tools, or only thinks, has no content in the form of OpenAI's.
    silent = "" if calls or any(found.get(name) for name in _THOUGHTS) else None
    return {**found, "content": _text(found.get("content", silent), where)}


def _text(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise DataError(f'{where}: each message needs a "content", text or a list of parts of text')
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise DataError(f"{where} has a part of the type {kind!r}, but the model reads text alone")
    return "".join(part["text"] for part in content)


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
