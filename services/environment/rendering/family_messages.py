"""Messages as a family's renderer takes them, and what its parser found in an answer. Pure."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.tool_calls import SaidCalls, checked_call
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.rendering.messages import in_form

if TYPE_CHECKING:
    from renderers import ParsedResponse, ParsedToolCall

_READ = frozenset({"ok", "unknown_tool"})
"""Calls with a name and arguments; that there is no such tool is for the tools to answer."""
_WHY = {
    "invalid_json": "its arguments are not valid JSON",
    "unclosed_block": "it has no end",
    "missing_name": "it names no tool",
    "malformed_structure": "it has another form than the one that calls have",
}


def linked(messages: Sequence[Json]) -> list[Json]:
    """The messages in form, each result of a tool with the id of its call, the first of its name that has none yet.

    Raises DataError for what no renderer can read.
    """
    found: list[Json] = []
    waiting: list[tuple[object, object]] = []
    for message in in_form(messages):
        calls = message.get("tool_calls")
        if message.get("role") == "assistant":
            waiting = [_name_and_id(call) for call in calls] if isinstance(calls, list) else []
        elif message.get("role") == "tool" and "tool_call_id" not in message:
            own = next((one for one in waiting if one[0] == message.get("name")), None)
            if own is not None:
                waiting.remove(own)
                message = {**message, "tool_call_id": own[1]}
        found.append(message)
    return found


def read_parsed(
    parsed: "ParsedResponse", ids: TokenIds, decode: Callable[[TokenIds], str], *, has_tools: bool
) -> tuple[Json, SaidCalls]:
    """The message for later turns, and its calls; `ids`, int32 [answer], are those parsed, without a stop token.

    A call that cannot be made stays in the content: a later turn answers it.
    """
    calls: list[Json] = []
    in_message: list[Json] = []
    malformed: list[str] = []
    content = parsed.content
    for number, one in enumerate(parsed.tool_calls):
        try:
            if not has_tools:
                raise ValueError("there are no tools")
            call = _call(one)
        except ValueError as error:
            malformed.append(f"Error: call {number + 1} is no call of a tool: {error}")
            span = one.token_span
            block = one.raw if span is None else decode(ids[span[0] : span[1]])
            content += f"\n{block}" if content else block
        else:
            calls.append(call)
            given = one.id or f"call_{number}"
            in_message.append({"type": "function", "id": given, "function": dict(call)})
    message: Json = {"role": "assistant", "content": content}
    if parsed.reasoning_content:
        message["reasoning_content"] = parsed.reasoning_content
    if in_message:
        message["tool_calls"] = in_message
    return message, SaidCalls(calls=tuple(calls), malformed=tuple(malformed) if has_tools else ())


def _call(one: "ParsedToolCall") -> Json:
    status = str(one.status)
    if status not in _READ:
        raise ValueError(_WHY.get(status, status))
    return checked_call(one.name, one.arguments)


def _name_and_id(call: object) -> tuple[object, object]:
    given = call if isinstance(call, dict) else {}
    function = given.get("function")
    return (function.get("name") if isinstance(function, dict) else None), given.get("id")
