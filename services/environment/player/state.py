"""What has been played of an episode so far, and the rollout that it becomes."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.services.environment import metrics
from headrace.services.environment.child.frames import Json
from headrace.services.environment.rendering.conversation import Answer
from headrace.services.environment.rendering.tool_calls import SaidCalls
from headrace.wire.contracts import EnvironmentReward, Episode, FinishReason, Rollout, Turn, played_turns
from headrace.wire.rendering.chat_template import Seen

WaitKind = Literal["slot", "weights", "environment", "engine", "tool"]
_LONGEST_WAIT = 200
"""Characters of what an episode waits for."""


@dataclass(slots=True)
class EpisodeState:
    """What has been played so far."""

    rollout_id: str
    messages: list[Json] = field(default_factory=list)
    """As the chat template reads them."""
    record: list[Json] = field(default_factory=list)
    """As people read them, with what is known of each."""
    tools: list[Json] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    reward: EnvironmentReward | None = None
    seen: Seen | None = None
    text: str = ""
    """What the policy said last."""
    said: SaidCalls = field(default_factory=SaidCalls)
    """The calls of tools in it."""
    replica_id: str = ""
    waits_kind: WaitKind = "environment"
    waits_for: str = "the environment to begin"
    waits_since: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""
    at_end: Callable[[], None] = lambda: None
    """Called once the episode has ended: not for an attempt that is played again."""

    @property
    def sampled(self) -> int:
        """Tokens that the policy has sampled."""
        return sum(len(turn.completion_ids) for turn in self.turns)

    def wait(self, kind: WaitKind, what: str) -> None:
        """Records what the episode waits for from now on."""
        # A name that the policy made up may be of any length, and hold half of a surrogate pair, which no message can.
        named = what[:_LONGEST_WAIT].encode(errors="replace").decode()
        self.waits_kind, self.waits_for, self.waits_since = kind, named, time.monotonic()

    def say(self, answer: Answer, note: Mapping[str, object]) -> None:
        """Takes an answer of the policy; people read all of its text."""
        self.seen, self.text, self.said = answer.seen, answer.text, answer.said
        self.messages.append(answer.message)
        self.record.append({**note, "role": "assistant", "content": answer.text})

    def hear(self, messages: Sequence[Json], notes: Sequence[Mapping[str, object]] = ()) -> None:
        """Takes messages of others; `notes` describe the last ones, and replace none of their keys."""
        self.messages += messages
        known: list[Mapping[str, object]] = [{}] * (len(messages) - len(notes)) + list(notes)
        self.record += [{**note, **message} for message, note in zip(messages, known, strict=True)]

    def with_calls(self) -> list[Json]:
        """The messages, those of the policy with the calls that were read in them, as the environment got them."""
        both = zip(self.messages, self.record, strict=True)
        return [{**one, "tool_calls": known["tool_calls"]} if "tool_calls" in known else one for one, known in both]

    def tool_label(self, name: object) -> str:
        """The name of a tool as a metric has it: what the policy calls may be any text."""
        known = [one["function"].get("name") for one in self.tools if isinstance(one["function"], dict)]
        return str(name) if name in known else "unknown"


def rollout_of(state: EpisodeState, reason: FinishReason, error: str) -> Rollout:
    """What was played as a rollout; its text is the policy's last message."""
    played = played_turns(state.turns)
    metrics.TOKENS.labels("sampled").inc(int(played.loss_mask.sum()))
    metrics.TOKENS.labels("read").inc(
        int((~played.loss_mask).sum()) + sum(len(segment.context_ids) for segment in played.segments)
    )
    rewards = state.turn_rewards if any(not math.isnan(one) for one in state.turn_rewards) else []
    return Rollout(
        rollout_id=state.rollout_id,
        token_ids=played.token_ids,
        logprobs=played.logprobs,
        finish_reason=reason,
        spans=played.spans,
        text=state.text,
        loss_mask=played.loss_mask if len(played.loss_mask) else None,
        episode=Episode(
            segments=played.segments,
            turn_ends=played.turn_ends,
            # An episode that was broken off within a turn has no reward of that turn.
            turn_rewards=(*rewards, *[math.nan] * (len(state.turns) - len(rewards))) if rewards else (),
            reward=state.reward,
            messages_json=json.dumps(state.record),
            error=error,
        ),
        kept=played.kept,
    )
