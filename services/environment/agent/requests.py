"""What a program asks for, in the form of OpenAI's chat completions; what is not honoured is refused by its name."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.services.environment.child.frames import Json
from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.contracts import Sampling

MODEL = "policy"
"""The one model that the endpoint serves."""
_ACCEPTED: dict[str, tuple[object, ...]] = {
    "n": (None, 1),
    "stop": (None, [], ""),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
    "parallel_tool_calls": (None, True),
    "modalities": (None, ["text"]),
    "store": (None, False),
}
"""What a field may be where it would change what is sampled; each other value is refused."""
_IGNORED = frozenset({"user", "metadata", "seed", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields that change no answer: the run has the seed."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class _Function(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str
    arguments: str


class _Call(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: str = ""
    type: Literal["function"] = "function"
    function: _Function


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def plain(self) -> Json:
        """The message with its content as one text, and without what is absent."""
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return {**self.model_dump(exclude_none=True), "content": text}


class _Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    function: dict[str, Any]


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    include_obfuscation: bool = False


class _Completion(BaseModel):
    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[_Message] = Field(min_length=1)
    tools: list[_Tool] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class ChatRequest:
    """A request that is honoured: `messages` and `tools` in OpenAI's form, `max_tokens` (None = what is left)."""

    def __init__(self, asked: _Completion) -> None:
        calls = (asked.__pydantic_extra__ or {}).get("tool_choice") != "none"
        self.messages = [one.plain() for one in asked.messages]
        self.tools: list[Json] = [one.model_dump() for one in asked.tools or [] if calls]
        self.max_tokens = asked.max_completion_tokens or asked.max_tokens
        self.stream = bool(asked.stream)
        self.with_usage = asked.stream_options is not None and asked.stream_options.include_usage


def read_request(body: bytes, sampling: Sampling) -> ChatRequest:
    """Reads a request; `sampling` is the run's. Raises ChatRefusedError naming the field that is not honoured."""
    try:
        asked = _Completion.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(one) for one in first["loc"] if not isinstance(one, str) or not one.startswith("list["))
        raise ChatRefusedError(400, f"{field or 'the body'}: {first['msg']}", param=field or None) from None
    if asked.model != MODEL:
        raise ChatRefusedError(
            404, f"model: there is no {asked.model!r}, the policy is {MODEL!r}", "model_not_found", param="model"
        )
    for name, value in (asked.__pydantic_extra__ or {}).items():
        if name not in _IGNORED and not any(_same(value, one) for one in _ACCEPTED.get(name, (None,))):
            words = f"{name}: the policy that is trained does not honour it; leave it out"
            raise ChatRefusedError(400, words, param=name)
    if not (sampling.greedy and asked.temperature == 0):
        _check_sampling("temperature", asked.temperature, sampling.temperature)
    _check_sampling("top_p", asked.top_p, sampling.top_p)
    return ChatRequest(asked)


def _same(value: object, one: object) -> bool:
    return value == one and isinstance(value, bool) == isinstance(one, bool)


def _check_sampling(name: str, asked: float | None, run: float) -> None:
    """What is trained must be what the run samples: its logprobs are those of its temperature."""
    if asked is not None and asked != run:
        words = f"{name}: the run samples with {run:g} (rollout.sampling), not with {asked:g}; leave it out"
        raise ChatRefusedError(400, words, param=name)
