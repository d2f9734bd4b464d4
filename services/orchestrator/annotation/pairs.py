"""Builds pairs of different completions of one group from a step's rollout rows. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import NotRequired, TypedDict

from pydantic import JsonValue, TypeAdapter

from headrace.wire.config.json_text import read_lenient
from headrace.wire.contracts.transcript import Transcript, transcript_of

Message = dict[str, JsonValue]
Record = dict[str, JsonValue]
"""One line of `votes.jsonl` or `pairs.jsonl`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two completions."""

    rollout_index: int
    text: str
    truncated: bool
    """Cut off by a limit of tokens or turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionPair:
    """Two completions to compare. A hash decides which is left and which right, the same for all annotators."""

    pair_id: str
    """`STEP-DIGEST`, the digest being of group id, rollout indices and completions."""
    step: int
    group_id: str
    sample_id: str
    prompt: str | tuple[Message, ...]
    """The messages passed to the chat template, or the text as the policy received it."""
    left: Side
    right: Side
    is_episode: bool = False
    """Its sides are conversations, tools included: for people, never rows of a training stage."""

    def as_record(self) -> Record:
        """The pair as JSON values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, JsonValue]) -> "CompletionPair":
        """Inverse of `as_record`; raises ValueError for a malformed record."""
        return _PAIR.validate_python(record)


_PAIR = TypeAdapter(CompletionPair)


class RolloutText(TypedDict):
    """The columns of a rollout that pairs are made of."""

    step: int
    group_id: str
    rollout_index: int
    sample_id: str
    prompt: str
    completion: str
    finish_reason: str
    episode: NotRequired[str | None]


def pairs_of_step(rows: Iterable[RolloutText], messages: Mapping[str, Sequence[Message]]) -> list[CompletionPair]:
    """Pairs of a step, interleaved across groups.

    `rows` are those of `RUN/rollouts/step-*.parquet`; `messages` maps sample id -> messages, for prompts that have
    them. Each completion is in at most one pair. Empty completions are left out, and of completions that differ only in
    outer white space one is used: a chat template would render them identically.
    """
    groups: dict[str, dict[str, RolloutText]] = {}
    for row in map(_as_read, rows):
        text = row["completion"].strip()
        if text:
            groups.setdefault(row["group_id"], {}).setdefault(text, row)
    of_groups = []
    for group_id, found in groups.items():
        # Sorted by hash: neither the first completion nor the best is favoured.
        different = sorted(found.values(), key=lambda row: _digest(group_id, row["completion"]))
        halves = zip(different[::2], different[1::2], strict=False)
        of_groups.append([_pair(one, other, messages.get(one["sample_id"])) for one, other in halves])
    return [pair for turn in zip_longest(*of_groups) for pair in turn if pair is not None]


def _pair(one: RolloutText, other: RolloutText, messages: Sequence[Message] | None) -> CompletionPair:
    first, second = sorted((_side(one), _side(other)), key=lambda side: side.rollout_index)
    digest = _digest(one["group_id"], first.rollout_index, first.text, second.rollout_index, second.text)
    left, right = (first, second) if int(digest, 16) % 2 else (second, first)
    return CompletionPair(
        pair_id=f"{one['step']}-{digest}",
        step=one["step"],
        group_id=one["group_id"],
        sample_id=one["sample_id"],
        prompt=_asked(one) or (one["prompt"] if messages is None else tuple(messages)),
        left=left,
        right=right,
        is_episode=bool(one.get("episode")),
    )


def _as_read(row: RolloutText) -> RolloutText:
    """The row with an episode's whole conversation as its completion."""
    answer = _transcript(row).answer
    return {**row, "completion": answer} if answer else row


def _asked(row: RolloutText) -> tuple[Message, ...]:
    return _transcript(row).asked


def _transcript(row: RolloutText) -> Transcript:
    found = read_lenient(row.get("episode") or "{}")
    return transcript_of(found.get("messages") if isinstance(found, dict) else None)


def _side(row: RolloutText) -> Side:
    return Side(
        rollout_index=row["rollout_index"],
        text=row["completion"],
        truncated=row["finish_reason"] in ("length", "turn_limit"),
    )


def _digest(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
