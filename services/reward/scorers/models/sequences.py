"""Samples as the token ids that a reward model scores: prompt, completion, and how it ends.

The run's samples carry the policy's own ids. What came as text is tokenized as the stage `reward_model` prepares its
pairs: the chat template of the model's folder, if it has one, else plain text; and a stop token at the end. A
conversation of several messages has no plain form: without a template that can write it, it is not scored.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from headrace.services.reward.scorers.models.passes import TokenIds
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate
from headrace.wire.rendering.tokenizers import load_tokenizer

TemplateChoice = Literal["auto", "never"]


class UnrenderedError(DataError):
    """A conversation that the model's chat template cannot write: no fault of the scorer, but nothing to score."""


class TextTokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, path: Path, *, chat_template: TemplateChoice, component: str) -> None:
        """Loads it. Raises ConfigError for a folder that has none, or none with an end."""
        self._path, self._component = path, component
        try:
            self._tokenizer = load_tokenizer(path)
        except (ModuleNotFoundError, ConfigError) as error:
            why = error.__cause__ or error
            raise ConfigError(f"{component}: {path}: samples of text need a tokenizer there: {why}") from error
        self._end = self._tokenizer.eos_token_id
        if self._end is None:
            raise ConfigError(f"{component}: the tokenizer of {path} has no end token; set its eos_token")
        templated = chat_template == "auto" and bool(getattr(self._tokenizer, "chat_template", None))
        self._template = ChatTemplate(self._tokenizer) if templated else None

    def ids(self, prompt: str, completion: str) -> TokenIds:
        """int32 [prompt + completion]; raises DataError for a prompt that the chat template refuses."""
        if self._template is None:
            context = list(self._tokenizer(prompt)["input_ids"])
            return self._ended(context, self._plain(completion))
        asked = [{"role": "user", "content": prompt}]
        return self._answered(asked, {"role": "assistant", "content": completion}, completion)

    def conversation_ids(self, messages: Sequence[Mapping[str, object]]) -> TokenIds:
        """int32 [conversation]; the last message is the policy's, messages have OpenAI's form.

        Raises UnrenderedError without a chat template, and for one that refuses the messages or leaves calls or
        results of tools out.
        """
        if self._template is None:
            raise UnrenderedError(
                f"{self._component}: the episode came as text, and {self._path} has no chat template to write its "
                "messages with; put the policy's chat_template.jinja there (and do not set chat_template = 'never')"
            )
        *before, last = messages
        try:
            ids = self._answered(before, last, str(last["content"]))
            if missing := self._leaves_out(messages):
                raise DataError(f"the chat template of {self._path} leaves out {missing}")
        except DataError as error:
            raise UnrenderedError(f"{self._component}: {error}") from None
        return ids

    def _leaves_out(self, messages: Sequence[Mapping[str, object]]) -> str:
        """What of tools the template does not write; empty = nothing."""
        bare = [{key: value for key, value in one.items() if key != "tool_calls"} for one in messages]
        mute = [{**one, "content": ""} if one["role"] == "tool" else dict(one) for one in messages]
        given = [dict(one) for one in messages]
        for what, other in (("calls of tools: it must write tool_calls", bare), ("what tools returned", mute)):
            # A template that refuses a conversation without them reads them.
            with contextlib.suppress(DataError):
                if other != given and self._rendered(other, asks=False) == self._rendered(given, asks=False):
                    return what
        return ""

    def _answered(self, asked: Sequence[Mapping[str, object]], last: Mapping[str, object], text: str) -> TokenIds:
        """What is asked and the policy's last message; `text` is what it said in it."""
        context = self._rendered(asked, asks=True)
        whole = self._rendered([*asked, last], asks=False)
        if whole[: len(context)] != context:
            # A template that writes past answers otherwise: the policy says it after the generation prompt.
            if last.get("tool_calls"):
                raise DataError("the chat template writes the last message, a call, not behind its generation prompt")
            return self._ended(context, self._plain(text))
        answer = whole[len(context) :]
        ends = [place for place, token in enumerate(answer) if token == self._end]
        return self._ended(context, answer[: ends[-1] + 1] if ends else answer)

    def _rendered(self, messages: Sequence[Mapping[str, object]], *, asks: bool) -> list[int]:
        assert self._template is not None
        return self._plain(self._template.written(messages, (), asks=asks))

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _ended(self, context: list[int], answer: list[int]) -> TokenIds:
        end = [] if answer and answer[-1] == self._end else [self._end]
        return np.array([*context, *answer, *end], np.int32)
