"""Inside the sandbox: the model's own chat template as a renderer of the package `renderers`.

The package's default renderer knows nothing of what was sampled: it writes each conversation anew, calls as the
template writes them. This one goes on from the ids of the last turn as episodes of other environments do, and what the
policy said stays the text that it said. Source of the protocol: renderers 0.1.12, base.py (`Renderer`).
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from renderers.base import ParsedResponse, ParsedToolCall, RenderedTokens, ToolCallParseStatus
from renderers.configs import BaseRendererConfig
from verifiers.v1.clients.train import ElasticRendererPool

from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.tool_calls import read_calls
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import DataError
from headrace.wire.rendering.chat_template import ChatTemplate, Seen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
_KEPT = 512
"""Contexts and answers that are remembered; what is forgotten is rendered anew."""
_OPENS = "<tool_call>"


class TemplateRendererConfig(BaseRendererConfig):  # type: ignore[misc]
    """What ends a turn."""

    _internal_fields = frozenset({"stop_token_ids"})
    stop_token_ids: tuple[int, ...] = ()
    """Those of the run, beside the tokenizer's end token."""


@dataclass(frozen=True, slots=True)
class _Context:
    messages: list[Json]
    seen: Seen


class OwnTemplateRenderer:
    """Renders for one tokenizer; calls are read in the form of Hermes and Qwen."""

    config_class = TemplateRendererConfig
    is_prefix_stable = False
    supports_tools = True
    effective_thinking_retention = "template"

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", config: TemplateRendererConfig | None = None) -> None:
        self.config = config or TemplateRendererConfig()
        self._tokenizer, self._template = tokenizer, ChatTemplate(tokenizer)
        end = tokenizer.eos_token_id
        self._stops = list(dict.fromkeys([*self.config.stop_token_ids, *([] if end is None else [int(end)])]))
        self._contexts: OrderedDict[bytes, _Context] = OrderedDict()
        self._said: OrderedDict[str, str] = OrderedDict()

    def render(
        self, messages: Sequence[Json], *, tools: Sequence[Json] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """The conversation anew. Raises ValueError for messages that the template refuses."""
        given = [self._as_said(one) for one in messages]
        if not add_generation_prompt:
            return _rendered(self._template.ids(self._text(given, tools, asks=False)).tolist(), [], given)
        return self._context(given, tools, None, 0)

    def render_ids(
        self, messages: Sequence[Json], *, tools: Sequence[Json] | None = None, add_generation_prompt: bool = False
    ) -> list[int]:
        """Its ids alone."""
        found: list[int] = self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt).token_ids
        return found

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: Sequence[Json],
        *,
        tools: Sequence[Json] | None = None,
    ) -> RenderedTokens | None:
        """What the template writes on behind the last turn; None where it does not go on from there."""
        before = self._contexts.get(np.array(previous_prompt_ids, np.int32).tobytes())
        if before is None:
            return None
        completion = np.array(previous_completion_ids, np.int32)
        seen = self._template.with_answer(before.seen, completion)
        answer: Json = {"role": "assistant", "content": self._spoken(completion)}
        messages = [*before.messages, answer, *map(self._as_said, new_messages)]
        found = self._context(messages, tools, seen, len(before.messages) + 1)
        return found if found.token_ids[: len(seen.token_ids)] == seen.token_ids.tolist() else None

    def parse_response(
        self, token_ids: list[int], *, tools: Sequence[Json] | None = None, prompt_ids: list[int] | None = None
    ) -> ParsedResponse:
        """Reads an answer, and remembers it as it was said."""
        text = self._spoken(np.array(token_ids, np.int32))
        said = read_calls(text if tools else "")
        content = text.partition(_OPENS)[0].rstrip() if said.calls and not said.malformed else text
        calls = [ParsedToolCall(raw="", name=str(one["name"]), arguments=one["arguments"]) for one in said.calls]
        broken = [ParsedToolCall(raw=one, status=ToolCallParseStatus.INVALID_JSON) for one in said.malformed]
        if said.calls:
            _keep(self._said, _key(content, list(said.calls)), text)
        return ParsedResponse(content=content, tool_calls=[*calls, *broken])

    def get_stop_token_ids(self) -> list[int]:
        """Those of the run, and the end token."""
        return list(self._stops)

    def forget(self) -> None:
        """Begins anew: an episode does not depend on those that were played before it."""
        self._contexts.clear()
        self._said.clear()

    def _context(
        self, messages: list[Json], tools: Sequence[Json] | None, seen: Seen | None, first: int
    ) -> RenderedTokens:
        """A context; its tokens are attributed to the messages from `first` on."""
        try:
            context = self._template.context(messages, tools or (), seen)
        except DataError as error:
            raise ValueError(str(error)) from error
        _keep(self._contexts, context.token_ids.tobytes(), _Context(messages, context))
        before = 0 if seen is None else len(seen.token_ids)
        start = 0 if seen is None else len(seen.text)
        ends = self._ends(messages, tools, first, context.text, start)
        owners = [-1] * before + self._owners(context.token_ids[before:], context.text[start:], start, ends)
        return _rendered(context.token_ids.tolist(), owners, messages[first:])

    def _ends(self, messages: list[Json], tools: Sequence[Json] | None, first: int, text: str, start: int) -> list[int]:
        """Where in the text each message ends."""
        ends: list[int] = []
        for place in range(first, len(messages)):
            upto = self._text(messages[: place + 1], tools, asks=False)
            ends.append(len(upto) if text.startswith(upto) else (ends[-1] if ends else start))
        return ends

    def _owners(self, ids: TokenIds, text: str, start: int, ends: list[int]) -> list[int]:
        """The message of each token, -1 behind the last: by its characters, or all the last one's where they differ."""
        found = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        if found["input_ids"] != ids.tolist():
            return [len(ends) - 1] * len(ids)
        places = np.array([begin for begin, _ in found["offset_mapping"]]) + start
        owners = np.searchsorted(ends, places, side="right")
        return [int(one) if one < len(ends) else -1 for one in owners]

    def _text(self, messages: Sequence[Json], tools: Sequence[Json] | None, *, asks: bool) -> str:
        try:
            return self._template.text(messages, tools or (), asks=asks)
        except DataError as error:
            raise ValueError(str(error)) from error

    def _spoken(self, completion: TokenIds) -> str:
        stopped = len(completion) and int(completion[-1]) in self.get_stop_token_ids()
        return self._template.decode(completion[:-1] if stopped else completion)

    def _as_said(self, message: Json) -> Json:
        """An answer of the policy with calls as the text that it was, if that is remembered."""
        calls = message.get("tool_calls")
        if message.get("role") != "assistant" or not isinstance(calls, list) or not calls:
            return dict(message)
        text = self._said.get(_key(message.get("content") or "", [_call(one) for one in calls]))
        return dict(message) if text is None else {"role": "assistant", "content": text}


def forget() -> None:
    """Lets all renderers of this process begin anew."""
    for slots in ElasticRendererPool._renderers.values():
        for one in slots:
            if isinstance(one.renderer, OwnTemplateRenderer):
                one.renderer.forget()


def _rendered(ids: list[int], owners: list[int], messages: Sequence[Json]) -> RenderedTokens:
    roles = [str(one.get("role") or "") for one in messages]
    return RenderedTokens(token_ids=ids, message_indices=owners, message_roles=roles)


def _keep(kept: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _KEPT:
        kept.popitem(last=False)


def _call(call: Json) -> Json:
    function = call["function"]
    assert isinstance(function, dict)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return {"name": function.get("name"), "arguments": arguments}


def _key(content: object, calls: list[Json]) -> str:
    return json.dumps([content, calls], sort_keys=True)
