"""Converts prompts to token ids with the model's tokenizer and chat template, for every stage.

Conversations are rendered as an episode of the same turns would be (`headrace.services.environment.rendering`).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.config.data import DataTable
from headrace.data.presets import Content, Message, asked
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate, Seen
from headrace.wire.rendering.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What the model is asked, as the engine gets it."""

    seen: Seen
    messages: list[Message] | None
    """Input of the chat template; None = no template, the text is the prompt as it is."""


def fitting_tokenizer(path: Path, *, vocab_size: int) -> "PreTrainedTokenizerBase":
    """The folder's tokenizer. Raises ConfigError if it does not load or does not fit the model."""
    from transformers.utils import logging

    # Warnings about lengths and classes would end in the error message of the preparation.
    logging.set_verbosity_error()
    tokenizer = load_tokenizer(path)
    if len(tokenizer) > vocab_size:
        raise ConfigError(
            f"the tokenizer in {path} has {len(tokenizer)} tokens, the model only {vocab_size}: "
            "they do not belong together"
        )
    return tokenizer


def stop_token_ids(path: Path, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokenizer's end token, and those of `generation_config.json` or else `config.json`, as transformers reads.

    Raises ConfigError if there is none: no completion could end.
    """
    ids = set() if tokenizer.eos_token_id is None else {int(tokenizer.eos_token_id)}
    for name in ("generation_config.json", "config.json"):
        if given := _end_tokens(path / name):
            ids.update(given)
            break
    if not ids:
        raise ConfigError(
            f"{path}: there is no end token, and no completion could end: set eos_token in tokenizer_config.json, or "
            "eos_token_id in generation_config.json"
        )
    return sorted(ids)


def _end_tokens(file: Path) -> list[int]:
    if not file.is_file():
        return []
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        given = config.get("eos_token_id")
        if given is None:
            given = (config.get("text_config") or {}).get("eos_token_id")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{file}: not a JSON object: {error}") from None
    ids = given if isinstance(given, list) else [] if given is None else [given]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in ids):
        raise ConfigError(f'{file}: "eos_token_id" must be the number of a token or a list of them, not {given!r}')
    return ids


class PromptRenderer:
    """Renders and tokenizes what is asked, as configured in `[data]`."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", table: DataTable) -> None:
        """Raises ConfigError without a chat template that the table needs."""
        self._tokenizer, self._table = tokenizer, table
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if table.chat_template == "always" and not has_template:
            raise ConfigError('[data] chat_template = "always", but the tokenizer has no chat template')
        self.template = ChatTemplate(tokenizer) if has_template else None
        self.begun_twice = 0
        """Prompts from which a second beginning-of-text token was taken off."""

    def ask(self, place: str, content: Content, tools: tuple[Message, ...], *answers: Content) -> PromptContext:
        """Renders what is asked for `answers`, if some are given. Raises DataError and ConfigError naming the row."""
        with at_row(place):
            if not self._uses_template(content, tools, answers):
                # A template writes its own special tokens; raw text gets those that the tokenizer adds.
                text, messages = str(content), None
                ids = np.array(self._tokenizer(text)["input_ids"], np.int32)
            else:
                assert self.template is not None
                messages = asked(content, self._table)
                seen = self.template.context(messages, tools, None)
                for answer in answers or ((),):
                    self._check_written([*messages, *(() if isinstance(answer, str) else answer)], tools)
                text, ids = seen.text, seen.token_ids
            return PromptContext(Seen(self._begun_once(ids), text, len(messages or ())), messages)

    def _check_written(self, messages: list[Message], tools: tuple[Message, ...]) -> None:
        assert self.template is not None
        if unwritten := self.template.unwritten(messages, tools):
            raise DataError(
                f"the model's chat template does not write the row's {unwritten}: put one that does into the model's "
                'folder, or leave them out (tools: [data.columns] tools = "")'
            )

    def _begun_once(self, ids: TokenIds) -> TokenIds:
        begin, first = self._tokenizer.bos_token_id, 0
        while begin is not None and first + 1 < len(ids) and ids[first] == ids[first + 1] == begin:
            first += 1
        self.begun_twice += bool(first)
        if not len(ids):
            raise DataError("the prompt has no tokens")
        return ids[first:]

    def _uses_template(self, content: Content, tools: tuple[Message, ...], answers: tuple[Content, ...]) -> bool:
        mode, has = self._table.chat_template, self.template is not None
        if any(isinstance(one, tuple) for one in (content, *answers)):
            if mode == "never" or not has:
                why = '[data] chat_template is "never"' if mode == "never" else "the tokenizer has no chat template"
                raise DataError(f"the row has messages, but {why}")
            return True
        use = mode == "always" or (mode == "auto" and has and self._table.preset != "trl")
        if self._table.system and not use:
            raise ConfigError("[data] system needs a chat template, and none is used for this data")
        if tools and not use:
            raise DataError("the row has tools, which only a chat template renders, and none is used")
        return use


@contextmanager
def at_row(place: str) -> Iterator[None]:
    """Names the row in errors of its rendering."""
    try:
        yield
    except (DataError, ConfigError) as error:
        raise type(error)(f"{place}: {error}") from None
