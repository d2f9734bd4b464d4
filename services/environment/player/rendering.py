"""Renders a conversation to token ids with the model's own tokenizer and chat template, for episodes and for examples.

What was sampled is never tokenized again: the ids of a turn are those of the turns before, and behind them the text
that the template writes on. That holds only if the template writes the conversation so far exactly as it was seen; a
template that drops old thoughts, or another end of a turn, does not. Then the conversation is rendered anew, and a
segment begins (see `headrace.wire.contracts.turns`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.services.environment.child.frames import Json
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Seen:
    """A conversation as the engine saw it: token ids, and the text that they stand for."""

    token_ids: TokenIds
    """int32 [tokens]"""
    text: str


class ConversationRenderer:
    """Renders contexts for one model."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises ConfigError for a tokenizer without a chat template."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                "model.path: the tokenizer has no chat template, and without one no conversation can be rendered: put "
                "a chat_template.jinja into the model's folder"
            )
        self._tokenizer = tokenizer

    def context(self, messages: Sequence[Json], tools: Sequence[Json], seen: Seen | None) -> Seen:
        """What the engine is given to answer `messages`, behind what it has `seen` if the template goes on from there.

        The ids of the result begin with those of `seen` exactly where they continue it. Raises DataError for messages
        that the template refuses.
        """
        text = self._text(messages, tools, asks=True)
        if seen is not None and text.startswith(seen.text):
            further = self._ids(text[len(seen.text) :])
            return Seen(np.concatenate([seen.token_ids, further]).astype(np.int32), text)
        return Seen(self._ids(text), text)

    def answer(self, context: Seen, messages: Sequence[Json], tools: Sequence[Json]) -> TokenIds | None:
        """What the template writes behind `context` for the last of `messages`, a given answer; int32 [answer].

        None where it does not write the answer behind its own generation prompt: no policy could be asked for it.
        Raises DataError for messages that the template refuses.
        """
        text = self._text(messages, tools, asks=False)
        return self._ids(text[len(context.text) :]) if text.startswith(context.text) else None

    def with_answer(self, context: Seen, completion_ids: TokenIds) -> Seen:
        """The context and what was sampled behind it, int32 [completion], its stop token included."""
        said = self._decode(completion_ids, special=True)
        return Seen(np.concatenate([context.token_ids, completion_ids]).astype(np.int32), context.text + said)

    def said(self, completion_ids: TokenIds, *, stopped: bool) -> str:
        """The text of an answer, without the stop token that ended it."""
        return self._decode(completion_ids[:-1] if stopped else completion_ids, special=True)

    def _text(self, messages: Sequence[Json], tools: Sequence[Json], *, asks: bool) -> str:
        import jinja2

        try:
            text = self._tokenizer.apply_chat_template(
                [dict(one) for one in messages],
                tools=[dict(one) for one in tools] or None,
                tokenize=False,
                add_generation_prompt=asks,
            )
        except (jinja2.TemplateError, TypeError, KeyError, ValueError) as error:
            raise DataError(f"the chat template refuses the conversation: {error}") from error
        if not text:
            raise DataError("the chat template writes nothing for the conversation")
        return str(text)

    def _ids(self, text: str) -> TokenIds:
        return np.array(self._tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    def _decode(self, token_ids: TokenIds, *, special: bool) -> str:
        text: str = self._tokenizer.decode(
            token_ids.tolist(), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
        return text
