"""What a group of an environment carries beside prompts and tokens: the task, and each rollout's episode.

An episode is a rollout of several turns. Its per-token arrays run over all its turns, what others wrote between them
included; *segments* divide them. A segment is a sequence that the engine really saw: contexts that continue one another
exactly (see `turns.py`), after a context of its own. A template that drops old thoughts, a compaction or a sub-agent
begins another one. One episode has one reward and one place in its group's baseline, however many segments it has.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.wire.contracts.checks import TokenIds, TokenMask, check_ids
from headrace.wire.errors import ContractError


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTask:
    """What a group plays in place of completing a prompt."""

    name: str
    """Name of the environment in the config."""
    digest: str
    """Digest of the environment's code and config: a worker with another one refuses the group."""
    task_json: str
    """The task's data as a JSON object; a worker rebuilds the task from it alone."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ContractError("bad_environment", "an environment has no name")
        try:
            found = json.loads(self.task_json)
        except (ValueError, RecursionError) as error:
            raise ContractError("bad_environment", f"{self.name}: its task is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ContractError("bad_environment", f"{self.name}: its task is not a JSON object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens of an episode from `start` to the next segment's, as the engine sampled and read them after a context."""

    start: int
    context_ids: TokenIds
    """int32 [context]: all that stands before the segment's first token."""

    def __post_init__(self) -> None:
        check_ids("context of a segment", self.context_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReward:
    """The environment's own verdict on an episode; the scorer `environment` reads it."""

    value: float | None = None
    """None: it gave none."""
    components: dict[str, float] = field(default_factory=dict)
    """What `value` was made of, by name."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Other numbers of the episode, by name: for people, never trained on."""

    def __post_init__(self) -> None:
        named = {**self.components, **self.metrics} | ({} if self.value is None else {"value": self.value})
        wrong = [name for name, number in named.items() if not math.isfinite(number)]
        if wrong:
            raise ContractError("bad_reward", f"{wrong[0]} of an environment's reward is {named[wrong[0]]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a rollout of an environment has beside its tokens. Axis: turns = calls of the engine, in order.

    Two turns in one segment, a tool's answer of two tokens between them:

    >>> import numpy as np
    >>> context = np.array([5, 6, 7], np.int32)
    >>> episode = Episode(segments=(Segment(start=0, context_ids=context),), turn_ends=(3, 8), turn_rewards=(0.5, 1.0))
    >>> episode.check("g12/0", np.array([True, True, True, False, False, True, True, True]))
    >>> episode.ends(8)
    (8,)
    """

    segments: tuple[Segment, ...] = ()
    """None only if the episode ended before its first turn did."""
    turn_ends: tuple[int, ...] = ()
    """[turns] The place after each turn's last sampled token."""
    turn_rewards: tuple[float, ...] = ()
    """[turns] Rewards of single turns, beside the episode's; NaN = the turn has none. Empty = no turn has."""
    reward: EnvironmentReward | None = None
    messages_json: str = "[]"
    """The conversation as a JSON list of messages: for people, judges and scorers of text."""
    error: str = ""
    """What ended the episode where its finish reason is an error; for people."""

    def ends(self, tokens: int) -> tuple[int, ...]:
        """[segments] Where each segment ends, in an episode of so many tokens."""
        return (*(segment.start for segment in self.segments[1:]), tokens) if self.segments else ()

    def check(self, name: str, mask: TokenMask) -> None:
        """Raises ContractError unless segments and turns divide the episode's tokens; `mask` is bool [completion].

        Each turn ends with a sampled token; each segment begins with one, and ends where a turn does.
        """
        starts = [segment.start for segment in self.segments]
        ends = list(self.ends(len(mask)))
        if (starts[:1] or [0]) != [0] or bool(starts) != bool(len(mask)) or not _rising([*starts, len(mask)]):
            raise ContractError("bad_segments", f"{name}: segments at {starts} do not divide {len(mask)} tokens")
        if not all(mask[start] for start in starts):
            raise ContractError("bad_segments", f"{name}: a segment begins with a token that the policy did not sample")
        if not _rising([0, *self.turn_ends]) or not set(ends) <= set(self.turn_ends):
            raise ContractError("bad_turns", f"{name}: turns end at {list(self.turn_ends)}, segments at {ends}")
        if self.turn_ends[-1:] != tuple(ends[-1:]) or not all(mask[end - 1] for end in self.turn_ends):
            raise ContractError("bad_turns", f"{name}: a turn does not end with a token that the policy sampled")
        if self.turn_rewards and len(self.turn_rewards) != len(self.turn_ends):
            raise ContractError(
                "length_mismatch", f"{name}: {len(self.turn_ends)} turns, {len(self.turn_rewards)} rewards of turns"
            )
        if any(math.isinf(reward) for reward in self.turn_rewards):
            raise ContractError("bad_reward", f"{name}: a turn's reward is not finite")


def _rising(numbers: Sequence[int]) -> bool:
    """Whether each number is above the one before; a list of one or none is."""
    return all(left < right for left, right in itertools.pairwise(numbers))
