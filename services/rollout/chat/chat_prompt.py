"""Renders chat messages to token ids with the model's own tokenizer and chat template."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ContractError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate, begins_answer
from headrace.wire.rendering.messages import in_form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHARACTERS = 6
"""Characters of a token, more than those of most texts: so many for each token of the context are looked at first."""
_MOST_CHARACTERS = 16
"""As above, where the tokenizer has no token as long: what is beyond cannot fit."""
_SLACK = 64
"""Tokens by which the beginning of a text may have more than it has within the whole."""
_ROLES = ("system", "developer", "user", "assistant", "tool")


class ChatPrompts:
    """Renders messages like the training prompts; without a template the prompt is the text of the only message."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, context_length: int) -> None:
        """`tokenizer` is a transformers tokenizer; `context_length` tokens are the engine's room."""
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._template = ChatTemplate(tokenizer) if getattr(tokenizer, "chat_template", None) else None

    def token_ids(self, messages_json: str) -> TokenIds:
        """Token ids, int32 [prompt].

        Raises ContractError: `bad_messages` for those that cannot be rendered, `context_overflow` for a text that is
        found too long before all of it is tokenized, which takes hundreds of bytes a character.
        """
        messages = read_messages(messages_json)
        if self._template is not None:
            try:
                text = self._template.text(messages, (), asks=True, continues=begins_answer(messages))
            except DataError as error:
                raise ContractError("bad_messages", str(error)) from error
        elif len(messages) == 1:
            text = messages[0]["content"]
        else:
            raise ContractError(
                "bad_messages", "the model has no chat template: give one message, its text is the prompt"
            )
        self._check_length(text)
        ids = self._ids(text)
        if not ids:
            raise ContractError("bad_messages", "the prompt has no tokens")
        return np.array(ids, dtype=np.int32)

    def _ids(self, text: str) -> list[int]:
        # A template writes its own special tokens; for raw text the tokenizer adds them.
        ids: list[int] = self._tokenizer(text, add_special_tokens=self._template is None)["input_ids"]
        return ids

    def _check_length(self, text: str) -> None:
        room, size = self._context_length, len(text)
        if size <= room * _CHARACTERS:
            return
        if size > room * self._most_characters or len(self._ids(text[: room * _CHARACTERS])) > room + _SLACK:
            raise ContractError(
                "context_overflow",
                f"a prompt of {size} characters leaves no room in a context of {room} (rollout.context_length)",
            )

    @cached_property
    def _most_characters(self) -> int:
        """Characters that one token stands for at most."""
        return max(_MOST_CHARACTERS, max(map(len, self._tokenizer.get_vocab()), default=0))


def read_messages(text: str) -> list[dict[str, str]]:
    """Parses and validates messages, joining text parts. Raises ContractError (`bad_messages`)."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ContractError("bad_messages", f"messages are not JSON: {error}") from error
    if not isinstance(given, list) or not given:
        raise ContractError("bad_messages", "messages must be a list with at least one message")
    try:
        return [_message(one, number) for number, one in enumerate(in_form(given))]
    except DataError as error:
        raise ContractError("bad_messages", str(error)) from error


def _message(given: Mapping[str, object], number: int) -> dict[str, str]:
    if given["role"] not in _ROLES:
        raise ContractError("bad_messages", f"messages[{number}].role must be one of {', '.join(_ROLES)}")
    return {"role": str(given["role"]), "content": str(given["content"])}
