"""The column `episode` of the rollouts: written from a rollout's episode, and read as a conversation. Pure.

It is JSON: `segments` ([start, context ids] each), `turn_ends`, `turn_rewards` (null = none), `reward` (`value`,
`components`, `metrics`; null = none), `messages`, `error`.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from headrace.wire.api.episodes import EpisodeView, MessageView, SegmentView
from headrace.wire.config.json_text import read_lenient
from headrace.wire.contracts.episodes import Episode

UNANSWERED = "unanswered"
"""Outcome of a call in which the episode ended."""
Decode = Callable[[Sequence[int]], list[str] | None]
Fields = Mapping[str, JsonValue]


def episode_text(episode: Episode) -> str:
    """The column's value."""
    reward = episode.reward
    return json.dumps(
        {
            "segments": [[one.start, one.context_ids.tolist()] for one in episode.segments],
            "turn_ends": list(episode.turn_ends),
            "turn_rewards": [None if math.isnan(one) else one for one in episode.turn_rewards],
            "reward": reward and {"value": reward.value, "components": reward.components, "metrics": reward.metrics},
            "messages": read_lenient(episode.messages_json),
            "error": episode.error,
        }
    )


def episode_view(text: str | None, sampled: Sequence[bool], decode: Decode) -> EpisodeView | None:
    """The conversation of a column's value; None without one, and for a text that is not an episode.

    `sampled` is bool [completion]: what the policy said. `decode` returns the tokens' texts, or None.
    """
    try:
        found = read_lenient(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    segments = tuple(_segments(found, len(sampled), decode))
    ends = _ints(found.get("turn_ends"))
    reward = _fields(found.get("reward"))
    return EpisodeView(
        messages=tuple(_messages(found, _turns(ends, sampled), segments)),
        segments=segments,
        turns=len(ends),
        sampled_tokens=sum(sampled),
        read_tokens=len(sampled) - sum(sampled),
        reward=_number(reward.get("value")),
        components=_numbers(reward.get("components")),
        metrics=_numbers(reward.get("metrics")),
        error=_text(found.get("error")),
    )


def _segments(found: Fields, tokens: int, decode: Decode) -> Iterator[SegmentView]:
    given = [one for one in _list(found.get("segments")) if isinstance(one, list) and len(one) == 2]
    starts = [one[0] if isinstance(one[0], int) else 0 for one in given]
    for start, end, (_, context) in zip(starts, [*starts[1:], tokens], given, strict=False):
        ids = _ints(context)
        texts = decode(ids)
        said = None if texts is None else "".join(texts)
        yield SegmentView(start=start, end=end, context_tokens=len(ids), context_text=said)


def _turns(ends: Sequence[int], sampled: Sequence[bool]) -> list[tuple[int, int, int]]:
    """(first token read before it, first token sampled, end) of each turn."""
    found, before = [], 0
    for end in ends:
        start = next((place for place in range(before, min(end, len(sampled))) if sampled[place]), end)
        found.append((before, start, end))
        before = end
    return found


def _messages(
    found: Fields, turns: Sequence[tuple[int, int, int]], segments: Sequence[SegmentView]
) -> Iterator[MessageView]:
    rewards = [_number(one) for one in _list(found.get("turn_rewards"))]
    calls: list[Fields] = []
    for message in map(_fields, _list(found.get("messages"))):
        outcome = _text(message.get("outcome"))
        if calls and not outcome:
            yield from map(_unanswered, calls)
            calls = []
        turn = message.get("turn")
        if message.get("role") == "assistant" and isinstance(turn, int) and 0 <= turn < len(turns):
            yield _said(message, turn, turns[turn], segments, rewards[turn] if turn < len(rewards) else None)
            calls = [_fields(one) for one in _list(message.get("tool_calls"))]
        else:
            call = calls.pop(0) if calls and outcome != "malformed" else {}
            yield _heard(message, call, outcome)
    yield from map(_unanswered, calls)


def _said(
    message: Fields,
    turn: int,
    place: tuple[int, int, int],
    segments: Sequence[SegmentView],
    reward: float | None,
) -> MessageView:
    read_from, start, end = place
    return MessageView(
        role="assistant",
        content=_text(message.get("content")),
        turn=turn,
        segment=next((number for number, one in enumerate(segments) if one.start <= start < one.end), None),
        read_from=read_from,
        start=start,
        end=end,
        versions=tuple(map(_text, _list(message.get("versions")))),
        replica_id=_text(message.get("replica")),
        reward=reward,
        seconds=_number(message.get("seconds")),
    )


def _heard(message: Fields, call: Fields, outcome: str) -> MessageView:
    cut = message.get("cut")
    return MessageView(
        role=_text(message.get("role")),
        content=_text(message.get("content")),
        name=_text(message.get("name")),
        arguments=json.dumps(call["arguments"], ensure_ascii=False) if "arguments" in call else "",
        outcome=outcome,
        cut=cut if isinstance(cut, int) else 0,
        seconds=_number(message.get("seconds")),
    )


def _unanswered(call: Fields) -> MessageView:
    return _heard({"role": "tool", "name": call.get("name"), "content": ""}, call, UNANSWERED)


def _fields(value: JsonValue) -> Fields:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _ints(value: JsonValue) -> list[int]:
    return [one for one in _list(value) if isinstance(one, int)]


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _number(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _numbers(value: JsonValue) -> dict[str, float]:
    return {name: number for name, one in _fields(value).items() if (number := _number(one)) is not None}
