"""A chat's answer in OpenAI's format, whole or streamed. Pure."""

import json
from dataclasses import dataclass

from headrace.wire.v1 import message_pb2, rollout_pb2

DONE = "data: [DONE]\n\n"


def version_text(version: message_pb2.PolicyVersion) -> str:
    """The version as `incarnation.version`."""
    return f"{version.incarnation}.{version.version}"


@dataclass(frozen=True, slots=True)
class Wording:
    """Builds the objects of one answer; holds the fields that they share."""

    chat_id: str
    created: int
    """Unix seconds."""
    model: str

    def whole(self, text: str, last: rollout_pb2.ChatPiece) -> dict[str, object]:
        """The `chat.completion` object."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": last.finish_reason}
        return self._object("chat.completion", last) | {"choices": [choice], "usage": usage(last), **_origin(last)}

    def opening(self, piece: rollout_pb2.ChatPiece) -> str:
        """The first event of a stream, which sets the role."""
        return self._event(piece, [_delta({"role": "assistant", "content": ""}, None)])

    def piece(self, piece: rollout_pb2.ChatPiece) -> str:
        """The events of one piece; the finish reason is an event of its own."""
        events = self._event(piece, [_delta({"content": piece.text}, None)]) if piece.text else ""
        if piece.finish_reason:
            events += self._event(piece, [_delta({}, piece.finish_reason)], **_origin(piece))
        return events

    def usage_event(self, last: rollout_pb2.ChatPiece) -> str:
        """The usage event, for requests with `include_usage`."""
        return self._event(last, [], usage=usage(last))

    def _event(self, piece: rollout_pb2.ChatPiece, choices: list[dict[str, object]], **more: object) -> str:
        return event(self._object("chat.completion.chunk", piece) | {"choices": choices, **more})

    def _object(self, kind: str, piece: rollout_pb2.ChatPiece) -> dict[str, object]:
        return {
            "id": self.chat_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": version_text(piece.version),
        }


def usage(last: rollout_pb2.ChatPiece) -> dict[str, int]:
    """Token counts of the whole chat."""
    total = last.prompt_tokens + last.completion_tokens
    return {
        "prompt_tokens": last.prompt_tokens,
        "completion_tokens": last.completion_tokens,
        "total_tokens": total,
    }


def event(value: dict[str, object]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def _delta(delta: dict[str, str], reason: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _origin(last: rollout_pb2.ChatPiece) -> dict[str, object]:
    """Extension field: the replica that answered, and its oldest and newest version if the weights changed."""
    versions = sorted({version_text(last.oldest_version), version_text(last.version)})
    return {"headrace": {"replica": last.replica_id, "versions": versions}}
