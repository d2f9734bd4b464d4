"""Samples as the token ids that a reward model scores: prompt, completion, and how it ends.

The run's samples carry the policy's own ids. What came as text is tokenized as the stage `reward_model` prepares its
pairs: the chat template of the model's folder, if it has one, else plain text; and a stop token at the end.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from headrace.services.reward.scorers.models.passes import TokenIds
from headrace.wire.errors import ConfigError, DataError

ChatTemplate = Literal["auto", "never"]


class TextTokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, path: Path, *, chat_template: ChatTemplate, component: str) -> None:
        """Loads it. Raises ConfigError for a folder that has none, or none with an end."""
        try:
            from transformers import AutoTokenizer

            self._tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
        except (ModuleNotFoundError, OSError, ValueError) as error:
            raise ConfigError(f"{component}: {path}: samples of text need a tokenizer there: {error}") from error
        self._end = self._tokenizer.eos_token_id
        if self._end is None:
            raise ConfigError(f"{component}: the tokenizer of {path} has no end token; set its eos_token")
        self._templated = chat_template == "auto" and bool(getattr(self._tokenizer, "chat_template", None))

    def ids(self, prompt: str, completion: str) -> TokenIds:
        """int32 [prompt + completion]; raises DataError for a prompt that the chat template refuses."""
        if not self._templated:
            context = list(self._tokenizer(prompt)["input_ids"])
            return self._ended(context, self._plain(completion))
        asked = [{"role": "user", "content": prompt}]
        context = self._rendered(asked, asks=True)
        whole = self._rendered([*asked, {"role": "assistant", "content": completion}], asks=False)
        if whole[: len(context)] != context:
            # A template that writes past answers otherwise: the policy says it behind the generation prompt.
            return self._ended(context, self._plain(completion))
        answer = whole[len(context) :]
        ends = [place for place, token in enumerate(answer) if token == self._end]
        return self._ended(context, answer[: ends[-1] + 1] if ends else answer)

    def _rendered(self, messages: list[dict[str, str]], *, asks: bool) -> list[int]:
        import jinja2

        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)
        except (jinja2.TemplateError, TypeError, KeyError) as error:
            raise DataError(f"the chat template refuses the sample: {error}") from None
        return self._plain(str(text))

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _ended(self, context: list[int], answer: list[int]) -> TokenIds:
        end = [] if answer and answer[-1] == self._end else [self._end]
        return np.array([*context, *answer, *end], np.int32)
