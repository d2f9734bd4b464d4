"""A sampled turn in OpenAI's form: as one answer, and as the deltas of a stream."""

import json
from collections.abc import Iterator

from headrace.services.environment.agent.requests import MODEL
from headrace.services.environment.agent.tree import TreeTurn
from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.conversation import Answer
from headrace.wire.api.openai import DONE, ChatObjects, usage
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
    return _objects(turn, created).completion(turn.said, _finish(turn), _usage(turn))


def chunks(turn: TreeTurn, created: int, *, with_usage: bool) -> Iterator[str]:
    """The same as server-sent events: deltas of the turn, which is finished."""
    form = _objects(turn, created)
    yield form.delta({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content"):
        yield from (form.delta({name: piece}) for piece in _pieces(str(turn.said.get(name) or "")))
    calls = turn.said.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        yield form.delta({"tool_calls": [{"index": place, **call}]})
    yield form.delta({}, _finish(turn))
    if with_usage:
        yield form.last(_usage(turn))
    yield DONE


def _objects(turn: TreeTurn, created: int) -> ChatObjects:
    return ChatObjects(f"chatcmpl-{turn.number}", created, MODEL)


def _finish(turn: TreeTurn) -> str:
    if turn.turn.finish_reason is FinishReason.LENGTH:
        return "length"
    return "tool_calls" if turn.said.get("tool_calls") else "stop"


def _usage(turn: TreeTurn) -> Json:
    return {"usage": usage(len(turn.turn.context_ids), len(turn.turn.completion_ids))}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
