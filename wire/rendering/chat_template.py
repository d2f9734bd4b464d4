"""Messages and tools as text and token ids by the model's chat template, after what is already there.

Ids that are there stay: if the template writes the conversation so far exactly as it was seen, the ids of the result
are those seen, followed by those of the text that the template adds. Else the conversation is rendered anew.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.deadline import template_deadline
from headrace.wire.rendering.messages import in_form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TAIL = 8
"""Tokens after which others are decoded: decoders drop the space before a text's first word."""
_RAISED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""What a template raises beside jinja2's own errors."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A conversation as the engine saw it."""

    token_ids: TokenIds
    """int32 [tokens]"""
    text: str = ""
    """What they stand for; empty where only ids are compared."""
    messages: int = 0
    """Messages that it holds, the answer included."""
    answer_tokens: int = 0
    """Tokens of the answer at its end."""


def begins_answer(messages: Sequence[Mapping[str, object]]) -> bool:
    """Whether the last message is an assistant's: the answer continues it."""
    return bool(messages) and messages[-1].get("role") == "assistant"


class ChatTemplate:
    """The chat template of one tokenizer."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises ConfigError for a tokenizer without a chat template."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                "model.path: the tokenizer has no chat template, and without one no conversation can be rendered: put "
                "a chat_template.jinja into the model's folder"
            )
        self._tokenizer = tokenizer
        self._added = frozenset(tokenizer.added_tokens_decoder)

    def context(
        self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]], seen: Seen | None
    ) -> Seen:
        """What is asked for the answer to `messages`, after what was `seen` if the template goes on from there.

        The ids of the result begin with those of `seen` exactly where they continue it. What begins with an assistant's
        message at its end is continued: the message is the beginning of the answer. Raises DataError for messages that
        the template refuses.
        """
        text = self.text(messages, tools, asks=True, continues=seen is None and begins_answer(messages))
        if seen is not None and text.startswith(seen.text):
            further = self._ids_behind(seen.token_ids, text[len(seen.text) :])
            return Seen(np.concatenate([seen.token_ids, further]).astype(np.int32), text, len(messages))
        return Seen(self.ids(text), text, len(messages))

    def with_answer(self, context: Seen, completion_ids: TokenIds) -> Seen:
        """The context and the answer after it, int32 [completion], its stop token included."""
        said = self.decode_behind(context.token_ids, completion_ids)
        ids = np.concatenate([context.token_ids, completion_ids]).astype(np.int32)
        return Seen(ids, context.text + said, context.messages + 1, len(completion_ids))

    def text(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]],
        *,
        asks: bool,
        continues: bool = False,
    ) -> str:
        """The conversation as text, with the generation prompt if it `asks`, open at its end if it `continues`.

        Raises DataError if the template refuses it, ConfigError for a template that does not end.
        """
        return self.written(in_form(messages), tools, asks=asks, continues=continues)

    def written(
        self,
        given: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]],
        *,
        asks: bool,
        continues: bool = False,
    ) -> str:
        """As `text`, of messages that are in form, or whose calls are to stay as a policy wrote them."""
        import jinja2

        if continues and given[-1].get("tool_calls"):
            raise DataError("the last message is an assistant's with calls of tools, which no answer can continue")
        try:
            with template_deadline():
                text = self._tokenizer.apply_chat_template(
                    [dict(one) for one in given],
                    tools=[dict(one) for one in tools] or None,
                    tokenize=False,
                    add_generation_prompt=asks and not continues,
                    continue_final_message=continues,
                )
        except ConfigError:
            raise
        except (jinja2.TemplateError, *_RAISED) as error:
            raise DataError(f"the chat template refuses the conversation: {error}") from error
        if not text:
            raise DataError("the chat template writes nothing for the conversation")
        return str(text)

    def unwritten(self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]) -> str:
        """What the template leaves out: the model would not know of it. Empty = nothing.

        An assistant's messages may lose what they say: thoughts, once they are past.
        """
        given = in_form(messages)
        whole = self.text(given, tools, asks=False)
        doubts: list[tuple[str, Sequence[Mapping[str, object]], Sequence[Mapping[str, object]]]] = []
        if tools:
            doubts.append(("tools", given, ()))
        if any(one.get("tool_calls") for one in given):
            bare = [{key: value for key, value in one.items() if key != "tool_calls"} for one in given]
            doubts.append(("tool_calls", bare, tools))
        for place, one in enumerate(given):
            if one["role"] != "assistant" and str(one["content"]).strip() not in whole:
                mute = [*given[:place], {**one, "content": ""}, *given[place + 1 :]]
                doubts.append((f"messages of the role {one['role']!r}", mute, tools))
        for what, *others in doubts:
            # A template that refuses a conversation without it reads it.
            with contextlib.suppress(DataError):
                if self.text(*others, asks=False) == whole:
                    return what
        return ""

    def ids(self, text: str) -> TokenIds:
        """int32 [tokens]; a template writes its own special tokens."""
        return np.array(self._tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    def decode(self, token_ids: TokenIds) -> str:
        """The text of ids, special tokens included."""
        text: str = self._tokenizer.decode(
            token_ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def decode_behind(self, before: TokenIds, token_ids: TokenIds) -> str:
        """The text that ids add to the text of the ids `before` them."""
        tail = before[-_TAIL:]
        first, both = self.decode(tail), self.decode(np.concatenate([tail, token_ids]))
        return both[len(first) :] if both.startswith(first) else self.decode(token_ids)

    def _ids_behind(self, before: TokenIds, text: str) -> TokenIds:
        """Ids of a text after others: a tokenizer may write a text's first word otherwise than the same word within.

        Only an added token (a stop token is one) is a border that nothing is merged across.
        """
        if len(before) and int(before[-1]) in self._added:
            found = self.ids(self.decode(before[-1:]) + text)
            if len(found) and found[0] == before[-1]:
                return found[1:]
        return self.ids(text)
