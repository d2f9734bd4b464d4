"""Converts the rows of a stage to token ids: prompts as RL's (`render`), and the answers after them.

An answer is what a policy would have to sample: it begins after the generation prompt and ends with a stop token.
What a template writes between two answers is context and is not trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.config.data import DataTable
from headrace.data.examples import Dialogue, RankedPair
from headrace.data.presets import Content, Message
from headrace.data.render import PromptContext, PromptRenderer, at_row
from headrace.wire.contracts import FinishReason, PolicyVersion, Turn, VersionSpan, join_turns
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import DataError
from headrace.wire.rendering.chat_template import ChatTemplate, Seen, begins_answer

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase


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
        """`stops`: token ids that end an answer. Raises ConfigError without a chat template that the table needs."""
        self._tokenizer, self.prompts, self._stops = tokenizer, PromptRenderer(tokenizer, table), frozenset(stops)
        self._end = stops[0] if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)

    def dialogue(self, row: Dialogue) -> list[RenderedExample]:
        """Renders one sequence, or several if the template rewrites earlier turns once they are past.

        Raises DataError naming the row.
        """
        return [
            RenderedExample(row.place, one.prompt_ids.tolist(), one.completion_ids.tolist(), one.loss_mask.tolist())
            for one in join_turns(self._turns(row, self._ask(row, row.answer), row.answer))
        ]

    def pair(self, row: RankedPair) -> RenderedPair:
        """Renders both answers. Raises DataError naming the row."""
        asked = self._ask(row, row.chosen, row.rejected)
        chosen, rejected = (self._one_answer(row, asked, answer) for answer in (row.chosen, row.rejected))
        better, worse = chosen.completion_ids.tolist(), rejected.completion_ids.tolist()
        if better == worse:
            raise DataError(f'{row.place}: "chosen" and "rejected" have the same tokens')
        return RenderedPair(row.place, chosen.context_ids.tolist(), better, worse, row.margin)

    def _ask(self, row: Dialogue | RankedPair, *answers: Content) -> PromptContext:
        return self.prompts.ask(row.place, row.prompt, row.tools, *answers)

    def _one_answer(self, row: RankedPair, asked: PromptContext, answer: Content) -> Turn:
        if isinstance(answer, tuple) and [one["role"] for one in answer] != ["assistant"]:
            raise DataError(f'{row.place}: "chosen" and "rejected" must be one message of the role "assistant" each')
        (turn,) = self._turns(row, asked, answer)
        return turn

    def _turns(self, row: Dialogue | RankedPair, asked: PromptContext, answer: Content) -> list[Turn]:
        """Each message of the assistant in the answer as a turn after what was seen before it."""
        if asked.messages is None:
            return [_turn(asked.seen.token_ids, self._plain_answer(str(answer)))]
        template = self.prompts.template
        assert template is not None
        said: list[Message] = list(answer) if isinstance(answer, tuple) else [{"role": "assistant", "content": answer}]
        first = len(asked.messages)
        messages, turns, context = [*asked.messages, *said], list[Turn](), asked.seen
        with at_row(row.place):
            if begins_answer(asked.messages):  # The answer's text goes on from the beginning in the prompt.
                first -= 1
                messages[first : first + 2] = [_joined(asked.messages[-1], said[0])]
            for index in range(first, len(messages)):
                if messages[index]["role"] == "assistant":
                    if index > first:
                        context = template.context(messages[:index], row.tools, context)
                    whole = template.text(messages[: index + 1], row.tools, asks=False)
                    after = self._after(template, context, whole)
                    turns.append(_turn(context.token_ids, after.token_ids[len(context.token_ids) :]))
                    context = after
        return turns

    def _after(self, template: ChatTemplate, context: Seen, whole: str) -> Seen:
        """What is seen after the context: the answer up to its stop token."""
        before, ids = template.ids(context.text), template.ids(whole)
        answer = ids[len(before) :]
        if not np.array_equal(ids[: len(before)], before):
            # A token would span the border: the policy, too, samples the answer after whole tokens.
            rest = whole.removeprefix(context.text)
            answer = template.ids(rest)
            if rest == whole or template.decode_behind(before, answer) != rest:
                raise DataError(
                    "the chat template does not write the answer behind its own generation prompt, so that the model "
                    "would be trained on what it is never asked; use a template that does (in the model's folder)"
                )
        return self._up_to_its_stop(template, context, answer, whole)

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

    def _plain_answer(self, text: str) -> TokenIds:
        encoded: BatchEncoding = self._tokenizer(text, add_special_tokens=False)
        ids = list(encoded["input_ids"])
        return np.array(ids if ids and ids[-1] in self._stops else [*ids, self._end], np.int32)


def _joined(beginning: Message, answer: Message) -> Message:
    if answer["role"] != "assistant":
        raise DataError("the prompt ends with an assistant's message, and the answer begins with none to continue it")
    return {**beginning, **answer, "content": f"{beginning['content']}{answer['content']}"}


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
