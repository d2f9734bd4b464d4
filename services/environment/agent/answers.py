"""A sampled turn in OpenAI's form: as one answer, as the deltas of a stream, and an error."""

import json
from collections.abc import Iterator

from headrace.services.environment.agent.requests import MODEL, CallRefusedError
from headrace.services.environment.agent.tree import TreeTurn
from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.conversation import Answer
from headrace.wire.contracts import FinishReason

_OPENS = "<tool_call>"
_PIECE = 400
"""Characters of a delta."""


def message_of(answer: Answer, number: int) -> tuple[Json, list[Json]]:
    """The answer as the program gets it, and its calls (`name`, `arguments`).

    A text with a call that cannot be read is left whole beside those that can: the program sees what was said. Thoughts
    that the renderer has read apart are in `reasoning_content`.
    """
    said, content = answer.said, str(answer.message["content"])
    thoughts = answer.message.get("reasoning_content")
    head: Json = {"role": "assistant"} if thoughts is None else {"role": "assistant", "reasoning_content": thoughts}
    if not said.calls:
        return {**head, "content": content}, []
    content = content if said.malformed else content.partition(_OPENS)[0].rstrip()
    calls = [
        {
            "id": f"call_{number}_{place}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for place, call in enumerate(said.calls)
    ]
    return {**head, "content": content or None, "tool_calls": calls}, list(said.calls)


def completion(turn: TreeTurn, created: int) -> Json:
    """A chat completion; `created` in Unix seconds."""
    choice = {"index": 0, "message": turn.said, "finish_reason": _finish(turn), "logprobs": None}
    return {**_head(turn, created, "chat.completion"), "choices": [choice], "usage": _usage(turn)}


def chunks(turn: TreeTurn, created: int, *, with_usage: bool) -> Iterator[str]:
    """The same as server-sent events: deltas of the turn, which is finished."""
    head = _head(turn, created, "chat.completion.chunk")

    def event(delta: Json, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**head, "choices": [choice]})

    yield event({"role": "assistant", "content": ""})
    thoughts = str(turn.said.get("reasoning_content") or "")
    yield from (event({"reasoning_content": piece}) for piece in _pieces(thoughts))
    content = str(turn.said["content"] or "")
    yield from (event({"content": piece}) for piece in _pieces(content))
    calls = turn.said.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        yield event({"tool_calls": [{"index": place, **call}]})
    yield event({}, _finish(turn))
    if with_usage:
        yield _event({**head, "choices": [], "usage": _usage(turn)})
    yield "data: [DONE]\n\n"


def models() -> Json:
    """The list of models."""
    return {"object": "list", "data": [model()]}


def model() -> Json:
    """The one model."""
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": "headrace"}


def error_of(refused: CallRefusedError) -> Json:
    """An error."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    return {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}}


def _head(turn: TreeTurn, created: int, kind: str) -> Json:
    return {"id": f"chatcmpl-{turn.number}", "object": kind, "created": created, "model": MODEL}


def _finish(turn: TreeTurn) -> str:
    if turn.turn.finish_reason is FinishReason.LENGTH:
        return "length"
    return "tool_calls" if turn.said.get("tool_calls") else "stop"


def _usage(turn: TreeTurn) -> Json:
    read, sampled = len(turn.turn.context_ids), len(turn.turn.completion_ids)
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _event(found: Json) -> str:
    return f"data: {json.dumps(found)}\n\n"
