"""Validates OpenAI chat requests; unsupported options are refused with a reason. Pure."""

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo, field_validator

from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.config.json_text import read_strict
from headrace.wire.config.problems import first_problem
from headrace.wire.v1 import rollout_pb2

MOST_BYTES = 8 * 1024 * 1024
"""Longest request; the guard refuses a longer one."""
_MOST_STOPS = 16
_LEAST_TEMPERATURE = 1e-6
"""Lower temperatures would overflow the scaled logits, and are treated as greedy."""


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(strict=True)

    include_usage: bool = False


def _as_asked(schema: dict[str, JsonValue]) -> None:
    """Describes what the validators allow beyond the fields' types: null is a field's default, a text is one stop."""
    fields = schema["properties"]
    assert isinstance(fields, dict)
    for name in fields.keys() - {"messages"}:
        kinds: list[JsonValue] = [fields[name], {"type": "null"}]
        fields[name] = {"anyOf": [*kinds, {"type": "string", "minLength": 1}] if name == "stop" else kinds}


class ChatBody(BaseModel):
    """Supported fields of `POST /v1/chat/completions`. Known options without support must have their default value."""

    model_config = ConfigDict(extra="ignore", strict=True, json_schema_extra=_as_asked)

    messages: list[dict[str, object]] = Field(min_length=1)
    model: str = ""
    max_tokens: int | None = Field(None, ge=1, le=1 << 20)
    max_completion_tokens: int | None = Field(None, ge=1, le=1 << 20)
    temperature: float = Field(1.0, ge=0, le=100)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: list[str] = []
    seed: int | None = None
    n: int = Field(1, ge=1, le=1)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    logprobs: Literal[False] | None = None
    tools: list[object] = Field([], max_length=0)
    functions: list[object] = Field([], max_length=0)
    frequency_penalty: float = Field(0, ge=0, le=0)
    presence_penalty: float = Field(0, ge=0, le=0)
    logit_bias: dict[str, float] = Field({}, max_length=0)
    response_format: dict[str, object] = {}

    @field_validator("*", mode="before")
    @classmethod
    def _null_is_absent(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name
        if value is None and name is not None and name != "messages":
            return cls.model_fields[name].default
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _list_of_stops(cls, value: object) -> object:
        stops = [value] if isinstance(value, str) else value
        if isinstance(stops, list) and (len(stops) > _MOST_STOPS or "" in stops):
            raise ValueError(f"at most {_MOST_STOPS} texts, none of them empty")
        return stops

    @field_validator("logprobs", mode="before")
    @classmethod
    def _boolean(cls, value: object) -> object:
        # A literal takes what equals it: 0, and 0.0.
        if value is not None and not isinstance(value, bool):
            raise ValueError("true or false")
        return value

    @field_validator("response_format")
    @classmethod
    def _text_only(cls, value: dict[str, object]) -> dict[str, object]:
        if value.get("type", "text") != "text":
            raise ValueError("only text is answered")
        return value


def read_chat(data: bytes, models: tuple[str, ...]) -> ChatBody:
    """The checked request. Raises ChatRefusedError."""
    try:
        body = ChatBody.model_validate(read_strict(data))
    except ValidationError as error:
        raise ChatRefusedError(400, first_problem(error), "invalid_value") from None
    except ValueError as error:
        raise ChatRefusedError(400, f"the request is not JSON: {error}", "invalid_json") from None
    _check_text([body.messages, body.stop])
    if body.model and body.model not in models:
        raise ChatRefusedError(
            404, f"there is no model {body.model!r} here, only {' and '.join(map(repr, models))}", "model_not_found"
        )
    return body


def _check_text(value: object) -> None:
    """Rejects lone surrogates, which JSON can escape but neither tokenizer nor wire format accepts."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise ChatRefusedError(400, "messages or stop: not all of it is text", "invalid_value") from None


def to_wire(
    body: ChatBody, stop_token_ids: tuple[int, ...], *, deadline_s: float, wait_s: float
) -> rollout_pb2.ChatRequest:
    """Converts to the protobuf request for a replica."""
    request = rollout_pb2.ChatRequest(
        messages_json=json.dumps(body.messages),
        max_tokens=body.max_completion_tokens or body.max_tokens or 0,
        temperature=body.temperature if body.temperature >= _LEAST_TEMPERATURE else 0.0,
        top_p=body.top_p,
        stop=body.stop,
        stop_token_ids=stop_token_ids,
        deadline_s=deadline_s,
        wait_s=wait_s,
    )
    if body.seed is not None:
        # Any integer is accepted as a seed.
        request.seed = body.seed % (1 << 63)
    return request
