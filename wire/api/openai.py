"""Chats in OpenAI's form, whoever answers them: completions, events of a stream, models, refusals. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.wire.api.error_reply import ChatErrorReply

Json = dict[str, object]
DONE = "data: [DONE]\n\n"


class ChatRefusedError(Exception):
    """A refused request, reported in OpenAI's error format."""

    def __init__(
        self, status: int, message: str, code: str | None = None, *, param: str | None = None, retry_s: int = 0
    ) -> None:
        """`param`: the field that is not honoured; `retry_s`: seconds for the Retry-After header, 0 = none."""
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.retry_s = status, message, code, param, retry_s

    def body(self) -> Json:
        """The JSON body of the response."""
        return ChatErrorReply.of(self.status, self.message, self.code, self.param).model_dump()


@dataclass(frozen=True, slots=True)
class ChatObjects:
    """Builds the objects of one answer; holds the fields that they share."""

    chat_id: str
    created: int
    """Unix seconds."""
    model: str

    def completion(self, message: Mapping[str, object], finish_reason: str, more: Mapping[str, object]) -> Json:
        """The whole answer; `more` are further fields, as `usage`."""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion", {"choices": [choice], **more})

    def delta(
        self, delta: Mapping[str, object], finish_reason: str | None = None, more: Mapping[str, object] | None = None
    ) -> str:
        """The event of one piece."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event(self._object("chat.completion.chunk", {"choices": [choice], **(more or {})}))

    def last(self, more: Mapping[str, object]) -> str:
        """The event of `usage`, for requests with `include_usage`."""
        return event(self._object("chat.completion.chunk", {"choices": [], **more}))

    def _object(self, kind: str, fields: Json) -> Json:
        return {"id": self.chat_id, "object": kind, "created": self.created, "model": self.model, **fields}


def event(value: Json) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def usage(prompt: int, completion: int) -> dict[str, int]:
    """Token counts of the whole chat."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def model(name: str, created: int) -> Json:
    """One model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "headrace"}


def models(names: Sequence[str], created: int) -> Json:
    """The list of models."""
    return {"object": "list", "data": [model(name, created) for name in names]}
