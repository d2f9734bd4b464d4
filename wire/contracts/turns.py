"""The turns of one conversation as the engine saw them, joined into sequences that may be trained as they are. Pure.

A turn is one call of the engine: the context it was given, as token ids, and what it sampled after it. The next turn's
context is rendered anew from the messages, and the same text is not guaranteed to get the same ids: a tokenizer may
merge across the border between what was sampled and what follows, sampled ids need not be those that the text encodes
to, and a chat template may drop the reasoning of earlier turns. A sequence put together from such parts is one that no
policy has seen, with logprobs of other contexts ("No More Retokenization Drift", blog.vllm.ai, 2025-10-22). So turns
are joined only where each context begins with exactly the ids of the turn before, and the conversation is split where
it does not: both sides are then what the engine really sampled under what it really saw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.wire.contracts.checks import check_ids, check_sampled
from headrace.wire.contracts.columns import IdLists
from headrace.wire.contracts.episodes import Segment
from headrace.wire.contracts.messages import (
    FinishReason,
    Logprobs,
    TokenIds,
    TokenMask,
    VersionSpan,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call of the engine. Refuses bad values with a ContractError."""

    context_ids: TokenIds
    """int32 [context]: all that stands before this completion, as the engine was given it."""
    completion_ids: TokenIds
    """int32 [completion]: what the policy sampled."""
    logprobs: Logprobs
    """float32 [completion], nats, temperature applied"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    """Which versions sampled the completion; places are those in the completion."""
    kept: IdLists | None = None
    """The ids that each token was drawn from, if they are kept."""

    def __post_init__(self) -> None:
        check_ids("context of a turn", self.context_ids)
        check_ids("completion of a turn", self.completion_ids)
        check_sampled("a turn", self.completion_ids, self.logprobs, self.spans)
        if self.kept is not None:
            self.kept.check("a turn", self.completion_ids, np.ones(len(self.completion_ids), np.bool_))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTurns:
    """One sequence: the fields of a `Rollout` that follows the prompt `prompt_ids`."""

    prompt_ids: TokenIds
    """int32 [prompt]: the first turn's context."""
    completion_ids: TokenIds
    """int32 [completion]: all that follows it."""
    logprobs: Logprobs
    """float32 [completion]; 0 where masked"""
    loss_mask: TokenMask
    """bool [completion]: True where the policy sampled, False where others wrote."""
    finish_reason: FinishReason
    """Finish reason of the last turn."""
    spans: tuple[VersionSpan, ...]
    """What others wrote belongs to the span before it: a version of its own would age the rollout for nothing."""
    turns: int


def join_turns(turns: Sequence[Turn]) -> list[JoinedTurns]:
    """The fewest sequences that hold all turns in order, each with contexts that continue one another exactly."""
    parts: list[list[Turn]] = []
    for turn in turns:
        if parts and _continues(parts[-1][-1], turn):
            parts[-1].append(turn)
        else:
            parts.append([turn])
    return [_join(part) for part in parts]


def _continues(before: Turn, turn: Turn) -> bool:
    """Whether the context of `turn` begins with exactly the ids that `before` had seen and sampled."""
    seen = np.concatenate([before.context_ids, before.completion_ids])
    return np.array_equal(turn.context_ids[: len(seen)], seen)


def _join(turns: Sequence[Turn]) -> JoinedTurns:
    first, last = turns[0], turns[-1]
    start = len(first.context_ids)
    whole = np.concatenate([last.context_ids, last.completion_ids])[start:]
    logprobs = np.zeros(len(whole), np.float32)
    mask = np.zeros(len(whole), np.bool_)
    spans: list[VersionSpan] = []
    for turn in turns:
        place = len(turn.context_ids) - start
        mask[place : place + len(turn.completion_ids)] = True
        logprobs[place : place + len(turn.completion_ids)] = turn.logprobs
        for span in turn.spans:
            _append(spans, place + span.start, place + span.end, span)
    return JoinedTurns(
        prompt_ids=first.context_ids,
        completion_ids=whole,
        logprobs=logprobs,
        loss_mask=mask,
        finish_reason=last.finish_reason,
        spans=tuple(spans),
        turns=len(turns),
    )


def _append(spans: list[VersionSpan], start: int, end: int, like: VersionSpan) -> None:
    """Lets the span before reach to `start`, and the same weights go on in it."""
    if spans:
        spans[-1] = replace(spans[-1], end=start)
        if (spans[-1].version, spans[-1].weights_digest) == (like.version, like.weights_digest):
            start = spans.pop().start
    spans.append(replace(like, start=start, end=end))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTurns:
    """All turns of an episode as the arrays of its rollout."""

    token_ids: TokenIds
    """int32 [completion]"""
    logprobs: Logprobs
    """float32 [completion]; 0 where masked"""
    loss_mask: TokenMask
    """bool [completion]"""
    spans: tuple[VersionSpan, ...]
    segments: tuple[Segment, ...]
    turn_ends: tuple[int, ...]
    """[turns]"""
    kept: IdLists | None
    """None if a turn has none."""


def played_turns(turns: Sequence[Turn]) -> PlayedTurns:
    """The turns, one after the other; a segment begins wherever a context does not continue the turn before.

    Each sampled token is there once: in the segment of its own turn. Without turns all is empty.
    """
    parts = join_turns(turns)
    starts = np.cumsum([0, *(len(part.completion_ids) for part in parts)]).tolist()
    spans: list[VersionSpan] = []
    for part, start in zip(parts, starts, strict=False):
        for span in part.spans:
            _append(spans, start + span.start, start + span.end, span)
    return PlayedTurns(
        token_ids=_joined([part.completion_ids for part in parts], np.int32),
        logprobs=_joined([part.logprobs for part in parts], np.float32),
        loss_mask=(mask := _joined([part.loss_mask for part in parts], np.bool_)),
        spans=tuple(spans),
        segments=tuple(
            Segment(start=start, context_ids=part.prompt_ids) for part, start in zip(parts, starts, strict=False)
        ),
        turn_ends=tuple(_ends(turns, parts, starts)),
        kept=_kept([turn.kept for turn in turns if turn.kept is not None], mask) if turns else None,
    )


def _kept(lists: Sequence[IdLists], mask: TokenMask) -> IdLists | None:
    """The lists of all turns; what others wrote, outside of the mask, has none."""
    counts, of_turns = np.zeros(len(mask), np.int32), _joined([one.counts for one in lists], np.int32)
    if len(of_turns) != mask.sum():
        return None
    counts[mask] = of_turns
    return IdLists(counts=counts, ids=_joined([one.ids for one in lists], np.int32))


def _ends(turns: Sequence[Turn], parts: Sequence[JoinedTurns], starts: Sequence[int]) -> Iterator[int]:
    """Where each turn ends: as far after its segment's start as after the context of the segment."""
    each = iter(turns)
    for part, start in zip(parts, starts, strict=False):
        for _ in range(part.turns):
            turn = next(each)
            yield start + len(turn.context_ids) + len(turn.completion_ids) - len(part.prompt_ids)


def _joined(arrays: Sequence[NDArray[Any]], kind: type[Any]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
