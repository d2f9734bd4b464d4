"""Converts prompts to token ids with the model's tokenizer and chat template. Only this module uses transformers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.config.data import DataTable
from headrace.data.presets import Message, Prompt, asked
from headrace.data.progress import RowProgress
from headrace.data.row_deadline import row_deadline
from headrace.services.environment.rendering.chat_template import ChatTemplate
from headrace.wire.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Rendered:
    """One prompt as the engine gets it."""

    prompt: Prompt
    text: str
    token_ids: list[int]
    messages: list[Message] | None
    """Input of the chat template; None = no template, the text is the prompt as it is."""


def load_tokenizer(path: Path, *, vocab_size: int) -> "PreTrainedTokenizerBase":
    """The folder's tokenizer. Raises ConfigError if it does not load or does not fit the model."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    # Warnings about lengths and classes would end in the error message of the preparation.
    logging.set_verbosity_error()
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the tokenizer in {path} cannot be loaded: {error}") from None
    if len(tokenizer) > vocab_size:
        raise ConfigError(
            f"the tokenizer in {path} has {len(tokenizer)} tokens, the model only {vocab_size}: "
            "they do not belong together"
        )
    return tokenizer


def stop_token_ids(path: Path, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokenizer's end token and those of `generation_config.json`."""
    ids = set() if tokenizer.eos_token_id is None else {int(tokenizer.eos_token_id)}
    file = path / "generation_config.json"
    if file.is_file():
        try:
            given = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"{file}: not a JSON object: {error}") from None
        ids.update(given if isinstance(given, list) else [] if given is None else [given])
    return sorted(ids)


class Renderer:
    """Renders and tokenizes prompts as configured in `[data]`."""

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", table: DataTable, progress: RowProgress | None = None
    ) -> None:
        self._tokenizer, self._table = tokenizer, table
        self._progress = progress or RowProgress()
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        self._template = ChatTemplate(tokenizer) if self._has_template else None
        if table.chat_template == "always" and not self._has_template:
            raise ConfigError('[data] chat_template = "always", but the tokenizer has no chat template')

    def render(self, prompts: Sequence[Prompt]) -> list[Rendered]:
        """Renders the prompts in order. Raises DataError naming the row."""
        rendered: list[Rendered] = []
        self._progress.begin("rendering", len(prompts))
        for start in range(0, len(prompts), _CHUNK):
            rendered += self._chunk(prompts[start : start + _CHUNK])
        return rendered

    def _chunk(self, prompts: Sequence[Prompt]) -> list[Rendered]:
        templated = [self._uses_template(prompt) for prompt in prompts]
        messages = [
            asked(prompt.content, self._table) if use else None for prompt, use in zip(prompts, templated, strict=True)
        ]
        texts = [self._text(prompt, some) for prompt, some in zip(prompts, messages, strict=True)]
        ids: list[list[int]] = [[]] * len(prompts)
        for use in (False, True):
            # A template writes its own special tokens; raw text gets those that the tokenizer adds.
            chosen = [index for index, flag in enumerate(templated) if flag is use]
            if chosen:
                encoded: BatchEncoding = self._tokenizer([texts[index] for index in chosen], add_special_tokens=not use)
                for index, token_ids in zip(chosen, encoded["input_ids"], strict=True):
                    ids[index] = list(token_ids)
        for prompt, token_ids in zip(prompts, ids, strict=True):
            if not token_ids:
                raise DataError(f"{prompt.place}: the prompt has no tokens")
        return [Rendered(*parts) for parts in zip(prompts, texts, ids, messages, strict=True)]

    def _uses_template(self, prompt: Prompt) -> bool:
        mode = self._table.chat_template
        if isinstance(prompt.content, tuple):
            if mode == "never" or not self._has_template:
                why = '[data] chat_template is "never"' if mode == "never" else "the tokenizer has no chat template"
                raise DataError(f"{prompt.place}: the prompt is a list of messages, but {why}")
            return True
        use = mode == "always" or (mode == "auto" and self._has_template and self._table.preset != "trl")
        if self._table.system and not use:
            raise ConfigError("[data] system needs a chat template, and none is used for this data")
        return use

    def _text(self, prompt: Prompt, messages: Sequence[Message] | None) -> str:
        self._progress.at(prompt.place)
        if messages is None:
            return str(prompt.content)
        assert self._template is not None
        try:
            with row_deadline():
                return self._template.text(messages, (), asks=True)
        except DataError as error:
            raise DataError(f"{prompt.place}: {error}") from None
