"""Renders with a model family's own renderer of the package `renderers`, where the chat template would lose the prefix.

A family's `bridge_to_next_turn` writes the next turn after exactly the ids of the last one. Where it declines (a new
query of the user, after which the family drops thoughts), the conversation is rendered anew. Its `parse_response`
reads thoughts and calls of tools from the ids of an answer, in the family's own form.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.conversation import Answer
from headrace.services.environment.rendering.family_messages import linked, read_parsed
from headrace.services.environment.rendering.probe import difference, probes
from headrace.services.environment.rendering.tool_calls import SaidCalls
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate, Seen, begins_answer

if TYPE_CHECKING:
    from renderers import Renderer
    from transformers import PreTrainedTokenizerBase

_RAISED = (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, NotImplementedError)
"""What the package raises for a conversation or an answer that it cannot read."""


class FamilyRenderer:
    """Renders and reads with one family's renderer."""

    def __init__(self, name: str, family: "Renderer", tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises ConfigError for a tokenizer without a chat template: there is nothing to compare the family with."""
        self._name, self._family, self._template = name, family, ChatTemplate(tokenizer)
        self.stop_token_ids = tuple(int(one) for one in family.get_stop_token_ids())
        """Tokens that end a turn of the family."""

    def check(self, tools: Sequence[Json]) -> None:
        """Renders short conversations, those with `tools` if there are any. Raises ConfigError at a difference."""
        for what, messages, given in probes(tools):
            try:
                wanted = self._template.ids(self._template.text(messages, given, asks=True))
                found = self._rendered(messages, given)
            except DataError as error:
                raise ConfigError(f"{self._key}: cannot be compared with the model's chat template: {error}") from error
            where = difference(found, wanted, self._template.decode)
            if where:
                raise ConfigError(
                    f"{self._key}: renders {what} otherwise than the model's own chat template: {where}. Set "
                    'environment.renderer = "template", or name the family whose template the model has'
                )

    def context(self, messages: Sequence[Json], tools: Sequence[Json], seen: Seen | None) -> Seen:
        """Bridges from what was `seen`, or renders `messages` anew. Raises DataError for what is not text."""
        given = linked(messages)
        if seen is None and begins_answer(given):
            raise DataError(
                f"{self._key}: a family's renderer continues no assistant's message at the end of a conversation: "
                'set environment.renderer = "template"'
            )
        if seen is not None:
            bridged = self._bridged(seen, given[seen.messages :], tools)
            if bridged is not None:
                return Seen(bridged, messages=len(messages))
        return Seen(self._rendered(given, tools), messages=len(messages))

    def answer(self, context: Seen, completion_ids: TokenIds, tools: Sequence[Json], *, stopped: bool) -> Answer:
        """Reads an answer; its message has thoughts and calls apart from its content."""
        ids = completion_ids[:-1] if stopped else completion_ids
        text = self._template.decode(ids)
        message: Json = {"role": "assistant", "content": text}
        try:
            parsed = self._family.parse_response(
                completion_ids.tolist(), tools=_or_none(tools), prompt_ids=context.token_ids.tolist()
            )
            message, said = read_parsed(parsed, ids, self._template.decode, has_tools=bool(tools))
        except _RAISED as error:
            said = SaidCalls(malformed=(f"Error: the message cannot be read: {error}",) if tools else ())
        seen = Seen(
            np.concatenate([context.token_ids, completion_ids]).astype(np.int32),
            messages=context.messages + 1,
            answer_tokens=len(completion_ids),
        )
        return Answer(seen=seen, text=text, message=message, said=said)

    @property
    def _key(self) -> str:
        return f"environment.renderer = {json.dumps(self._name)}"

    def _bridged(self, seen: Seen, further: Sequence[Json], tools: Sequence[Json]) -> TokenIds | None:
        """The ids after exactly those seen; None where the family declines to continue them."""
        border = len(seen.token_ids) - seen.answer_tokens
        before, said = np.split(seen.token_ids, [border])
        try:
            found = self._family.bridge_to_next_turn(
                before.tolist(), said.tolist(), list(further), tools=_or_none(tools)
            )
        except _RAISED as error:
            raise DataError(f"{self._key}: refuses the conversation: {error}") from error
        if found is None:
            return None
        ids = np.array(found.token_ids, np.int32)
        return ids if np.array_equal(ids[: len(seen.token_ids)], seen.token_ids) else None

    def _rendered(self, messages: Sequence[Json], tools: Sequence[Json]) -> TokenIds:
        try:
            ids = self._family.render_ids(list(messages), tools=_or_none(tools), add_generation_prompt=True)
        except _RAISED as error:
            raise DataError(f"{self._key}: refuses the conversation: {error}") from error
        if not len(ids):
            raise DataError(f"{self._key}: writes nothing for the conversation")
        return np.array(ids, np.int32)


def _or_none(tools: Sequence[Json]) -> list[Json] | None:
    return [dict(one) for one in tools] or None
