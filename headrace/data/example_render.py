"""Converts the rows of a stage to token ids with the model's own tokenizer and chat template.

Conversations are rendered as an episode of the same turns would be (`headrace.services.environment.rendering`). An
answer is what a policy would have to sample: it begins after the generation prompt and ends with a stop token.
What a template writes between two answers is context and is not trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.config.data import DataTable
from headrace.data.examples import Dialogue, RankedPair
from headrace.data.presets import Message, asked
from headrace.data.row_deadline import row_deadline
from headrace.services.environment.rendering.chat_template import ChatTemplate, Seen
from headrace.wire.contracts import FinishReason, PolicyVersion, Turn, VersionSpan, join_turns
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

Content = str | tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class RenderedExample:
    """One sequence to learn from."""

    place: str
    prompt_ids: list[int]
    completion_ids: list[int]
    trained: list[bool]
    """Which tokens of the completion are trained; in a multi-turn example those of the answers only."""

    @property
    def tokens(self) -> int:
        """Length of prompt and completion together."""
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass(frozen=True, slots=True)
class RenderedPair:
    """One ranked pair."""

    place: str
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    margin: float

    @property
    def tokens(self) -> int:
        """Length of the prompt and the longer answer together."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


class ExampleRenderer:
    """Renders and tokenizes rows as configured in `[data]`."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", table: DataTable, stops: Sequence[int]) -> None:
        """`stops`: token ids that end an answer. Raises ConfigError without any, or without a template."""
        self._tokenizer, self._table, self._stops = tokenizer, table, frozenset(stops)
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        if not stops:
            raise ConfigError("the model's tokenizer has no end token: no answer could end; set its eos_token")
        self._end = stops[0] if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)
        if table.chat_template == "always" and not self._has_template:
            raise ConfigError('[data] chat_template = "always", but the tokenizer has no chat template')
        self._template = ChatTemplate(tokenizer) if self._has_template else None

    def dialogue(self, row: Dialogue) -> list[RenderedExample]:
        """Renders one sequence, or several if the template rewrites earlier turns once they are past.

        Raises DataError naming the row.
        """
        if not self._uses_template(row, row.answer):
            assert isinstance(row.prompt, str) and isinstance(row.answer, str)
            prompt, answer = self._plain(row.place, row.prompt), self._plain_answer(row.answer)
            return [RenderedExample(row.place, prompt, answer, [True] * len(answer))]
        messages = asked(row.prompt, self._table)
        first = len(messages)
        messages += self._answer_messages(row.answer)
        turns, seen = [], None
        for index in range(first, len(messages)):
            if messages[index]["role"] == "assistant":
                turn, seen = self._answer(row, messages[: index + 1], seen)
                turns.append(turn)
        return [
            RenderedExample(row.place, one.prompt_ids.tolist(), one.completion_ids.tolist(), one.loss_mask.tolist())
            for one in join_turns(turns)
        ]

    def pair(self, row: RankedPair) -> RenderedPair:
        """Renders both answers. Raises DataError naming the row."""
        sides = [self._one_answer(row, answer) for answer in (row.chosen, row.rejected)]
        (prompt, chosen), (_, rejected) = sides
        if chosen == rejected:
            raise DataError(f'{row.place}: "chosen" and "rejected" have the same tokens')
        return RenderedPair(row.place, prompt, chosen, rejected, row.margin)

    def _one_answer(self, row: RankedPair, answer: Content) -> tuple[list[int], list[int]]:
        if not self._uses_template(row, answer):
            assert isinstance(row.prompt, str) and isinstance(answer, str)
            return self._plain(row.place, row.prompt), self._plain_answer(answer)
        messages, said = asked(row.prompt, self._table), self._answer_messages(answer)
        if len(said) != 1 or said[0]["role"] != "assistant":
            raise DataError(f'{row.place}: "chosen" and "rejected" must be one message of the role "assistant" each')
        turn, _ = self._answer(row, [*messages, *said], None)
        return turn.context_ids.tolist(), turn.completion_ids.tolist()

    def _uses_template(self, row: Dialogue | RankedPair, answer: Content) -> bool:
        mode, has = self._table.chat_template, self._has_template
        why = '[data] chat_template is "never"' if mode == "never" else "the tokenizer has no chat template"
        if isinstance(row.prompt, tuple) or isinstance(answer, tuple):
            if mode == "never" or not has:
                raise DataError(f"{row.place}: the row has messages, but {why}")
            return True
        use = mode == "always" or (mode == "auto" and has and self._table.preset != "trl")
        if self._table.system and not use:
            raise ConfigError("[data] system needs a chat template, and none is used for this data")
        if row.tools and not use:
            raise DataError(f"{row.place}: the row has tools, which only a chat template renders, and none is used")
        return use

    def _answer_messages(self, answer: Content) -> list[Message]:
        return list(answer) if isinstance(answer, tuple) else [{"role": "assistant", "content": answer}]

    def _answer(self, row: Dialogue | RankedPair, messages: Sequence[Message], seen: Seen | None) -> tuple[Turn, Seen]:
        """The last message as a turn behind what was `seen`, and what is seen then: all up to its stop token."""
        template = self._template
        assert template is not None
        try:
            with row_deadline():
                context = template.context(messages[:-1], row.tools, seen)
                whole = template.text(messages, row.tools, asks=False)
        except DataError as error:
            raise DataError(f"{row.place}: {error}") from None
        before, ids = template.ids(context.text), template.ids(whole)
        if not np.array_equal(ids[: len(before)], before):
            raise DataError(
                f"{row.place}: the chat template does not write the answer behind its own generation prompt, so that "
                "the model would be trained on what it is never asked; use a template that does (in the model's folder)"
            )
        after = self._up_to_its_stop(template, context, ids[len(before) :], whole)
        return _turn(context.token_ids, after.token_ids[len(context.token_ids) :]), after

    def _up_to_its_stop(self, template: ChatTemplate, context: Seen, answer: TokenIds, whole: str) -> Seen:
        """The context with the answer up to its last stop token, or with an end token where the template has none."""
        ends = [number for number, token in enumerate(answer.tolist()) if token in self._stops]
        if not ends:
            return template.with_answer(context, np.append(answer, np.int32(self._end)))
        said, rest = np.split(answer, [ends[-1] + 1])
        after = template.with_answer(context, said)
        # The row's own text: what a tokenizer's ids stand for may be spelled otherwise (a composed accent).
        written = template.decode_behind(said, rest)
        return replace(after, text=whole.removesuffix(written)) if whole.endswith(written) else after

    def _plain(self, place: str, text: str) -> list[int]:
        encoded: BatchEncoding = self._tokenizer(text)
        if not encoded["input_ids"]:
            raise DataError(f"{place}: the prompt has no tokens")
        return list(encoded["input_ids"])

    def _plain_answer(self, text: str) -> list[int]:
        encoded: BatchEncoding = self._tokenizer(text, add_special_tokens=False)
        ids = list(encoded["input_ids"])
        return ids if ids and ids[-1] in self._stops else [*ids, self._end]


def _turn(context: TokenIds, answer: TokenIds) -> Turn:
    """A turn from given text, not sampled: only its ids are used, log-probs and version are zeros."""
    version = PolicyVersion(incarnation=0, version=0)
    return Turn(
        context_ids=context,
        completion_ids=answer,
        logprobs=np.zeros(len(answer), np.float32),
        finish_reason=FinishReason.STOP,
        spans=(VersionSpan(start=0, end=len(answer), version=version),),
    )
