"""Renders the turns of an episode, and reads what the policy said in them.

What was sampled is never tokenized again: the ids of a turn are those of the turns before, followed by what is
written on. Where that does not continue what was seen (a template that drops old thoughts, another end of a turn), the
conversation is rendered anew, and a segment begins (see `headrace.wire.contracts.turns`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.tool_calls import SaidCalls, read_calls
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.rendering.chat_template import ChatTemplate, Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the policy said in a turn."""

    seen: Seen
    """The context and the answer."""
    text: str
    """All of it, without the stop token that ended it."""
    message: Json
    """As the next turn's context renders it."""
    said: SaidCalls
    """Calls of tools in it; none where there are no tools."""


class ConversationRenderer(Protocol):
    """Renders contexts for one model."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a turn, beside those of the run's sampling."""
        ...

    def check(self, tools: Sequence[Json]) -> None:
        """Raises ConfigError if it would render otherwise than the model's own chat template."""
        ...

    def context(self, messages: Sequence[Json], tools: Sequence[Json], seen: Seen | None) -> Seen:
        """What the engine is given to answer `messages`, after what it has `seen` if that can be continued.

        The ids of the result begin with those of `seen` exactly where they continue it. Raises DataError for messages
        that cannot be rendered.
        """
        ...

    def answer(self, context: Seen, completion_ids: TokenIds, tools: Sequence[Json], *, stopped: bool) -> Answer:
        """Reads an answer, int32 [completion]; `stopped`: a stop token, its last, ended it."""
        ...


class TemplateRenderer(ChatTemplate):
    """Renders with the tokenizer's chat template; calls are read in the form of Hermes and Qwen."""

    stop_token_ids: tuple[int, ...] = ()

    def check(self, tools: Sequence[Json]) -> None:
        """Accepts all tools: it is the template that a model brings."""

    def answer(self, context: Seen, completion_ids: TokenIds, tools: Sequence[Json], *, stopped: bool) -> Answer:
        """Reads an answer; its message is its whole text."""
        text = self.decode(completion_ids[:-1] if stopped else completion_ids)
        return Answer(
            seen=self.with_answer(context, completion_ids),
            text=text,
            message={"role": "assistant", "content": text},
            said=read_calls(text) if tools else SaidCalls(),
        )
