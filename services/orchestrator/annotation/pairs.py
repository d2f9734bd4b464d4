"""Pairs of different completions of one group, out of the rows of a step's rollouts. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two completions."""

    rollout_index: int
    text: str
    truncated: bool
    """The limit cut it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What an annotator is asked about. Its sides stand as a hash of its id throws them, for all annotators alike."""

    pair_id: str
    """`STEP-DIGEST` of group and completions: the same pair has the same id, another has another."""
    step: int
    group_id: str
    sample_id: str
    prompt: str | tuple[Message, ...]
    """The messages that the chat template was given, or the text as the policy got it."""
    left: Side
    right: Side

    def as_record(self) -> dict[str, Any]:
        """JSON values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Pair":
        """Raises KeyError or TypeError for what `as_record` never wrote."""
        prompt = record["prompt"]
        sides = {name: Side(**record[name]) for name in ("left", "right")}
        return cls(**{**record, **sides, "prompt": prompt if isinstance(prompt, str) else tuple(prompt)})


def pairs_of_step(rows: Iterable[Mapping[str, Any]], messages: Mapping[str, Sequence[Message]]) -> list[Pair]:
    """Pairs of a step, those of different groups in turn.

    `rows` are those of `RUN/rollouts/step-*.parquet`; `messages` by sample id, of the prompts that were messages. Each
    completion is in one pair at most. Empty ones, and those that differ in outer white space only, are in none: a chat
    template would make them the same.
    """
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        text = row["completion"].strip()
        if text:
            groups.setdefault(row["group_id"], {}).setdefault(text, row)
    of_groups = []
    for group_id, found in groups.items():
        # By hash: neither the first of a group nor the best is in more pairs than the others.
        different = sorted(found.values(), key=lambda row: _digest(group_id, row["completion"]))
        halves = zip(different[::2], different[1::2], strict=False)
        of_groups.append([_pair(one, other, messages.get(one["sample_id"])) for one, other in halves])
    return [pair for turn in zip_longest(*of_groups) for pair in turn if pair is not None]


def _pair(one: Mapping[str, Any], other: Mapping[str, Any], messages: Sequence[Message] | None) -> Pair:
    first, second = sorted((_side(one), _side(other)), key=lambda side: side.rollout_index)
    digest = _digest(one["group_id"], first.rollout_index, first.text, second.rollout_index, second.text)
    left, right = (first, second) if int(digest, 16) % 2 else (second, first)
    return Pair(
        pair_id=f"{one['step']}-{digest}",
        step=one["step"],
        group_id=one["group_id"],
        sample_id=one["sample_id"],
        prompt=one["prompt"] if messages is None else tuple(messages),
        left=left,
        right=right,
    )


def _side(row: Mapping[str, Any]) -> Side:
    return Side(rollout_index=row["rollout_index"], text=row["completion"], truncated=row["finish_reason"] == "length")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
