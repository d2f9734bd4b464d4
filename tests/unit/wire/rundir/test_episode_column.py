"""An episode in the rollouts file: read as a conversation with its tokens, calls and rewards; damage is no error."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.wire.rundir.episode_column import episode_text, episode_view
from tests import builders

PLAYED = builders.played_rollout()
MASK = PLAYED.trained_mask.tolist()
CALLS = [{"name": "find", "arguments": {"who": "Ada"}}, {"name": "add", "arguments": {"a": 1}}]


def letters(ids: Sequence[int]) -> list[str]:
    return [f"<{one}>" for one in ids]


def policy(turn: int, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": f"turn {turn}", "turn": turn, "seconds": 0.5, "replica": "rollout-1"}
    return {**said, "versions": ["1.0"], **more}


def view(messages: list[dict[str, Any]], **changes: Any) -> Any:
    assert PLAYED.episode is not None
    episode = replace(PLAYED.episode, messages_json=json.dumps(messages), **changes)
    found = episode_view(episode_text(episode), MASK, letters)
    assert found is not None
    return found


def test_segments_turns_and_rewards_are_read_as_they_were_played() -> None:
    found = view([{"role": "user", "content": "1+2="}, policy(0), policy(1), policy(2)], error="late")
    assert [(one.start, one.end, one.context_tokens, one.context_text) for one in found.segments] == [
        (0, 3, 2, "<5><6>"),
        (3, 5, 3, "<5><7><8>"),
    ]
    turns = [one for one in found.messages if one.turn is not None]
    assert [(one.read_from, one.start, one.end, one.segment) for one in turns] == [
        (0, 0, 1, 0),
        (1, 2, 3, 0),
        (3, 3, 5, 1),
    ]
    assert [one.reward for one in turns] == [0.5, None, 1.0]
    assert turns[1].versions == ("1.0",) and turns[1].replica_id == "rollout-1" and turns[1].seconds == 0.5
    assert (found.turns, found.sampled_tokens, found.read_tokens, found.error) == (3, 4, 1, "late")
    assert (found.reward, found.components, found.metrics) == (0.75, {"found": 1.0}, {"calls": 2.0})


def test_a_call_stands_with_its_arguments_result_outcome_and_time() -> None:
    result = {"role": "tool", "name": "find", "content": "born 1815", "outcome": "returned", "seconds": 0.25, "cut": 7}
    bad = {"role": "tool", "name": "", "content": "Error: no call", "outcome": "malformed"}
    found = view([policy(0, tool_calls=CALLS), result, {**result, "name": "add", "outcome": "raised"}, bad])
    tools = [one for one in found.messages if one.role == "tool"]
    assert [(one.name, one.arguments, one.outcome) for one in tools] == [
        ("find", '{"who": "Ada"}', "returned"),
        ("add", '{"a": 1}', "raised"),
        ("", "", "malformed"),
    ]
    assert (tools[0].content, tools[0].seconds, tools[0].cut) == ("born 1815", 0.25, 7)


def test_an_episode_that_failed_before_its_first_turn_has_its_error() -> None:
    lost = builders.lost_rollout().episode
    assert lost is not None
    found = episode_view(episode_text(lost), [], letters)
    assert found is not None and found.messages == () and found.segments == ()
    assert found.error == "ValueError: no such file (game.py:12)" and found.reward is None


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"segments": [[0], 3, ["x", [1]]], "turn_ends": ["x", 9], "messages": [3, {"role": 1, "turn": 7}]}',
        '{"messages": [{"role": "assistant", "turn": 0, "tool_calls": [3]}], "turn_ends": [1], "turn_rewards": 3}',
        '{"reward": {"value": "x", "components": {"a": "b"}}, "error": 3}',
    ],
)
def test_odd_values_are_left_out(text: str) -> None:
    found = episode_view(text, [True], lambda ids: None)
    assert found is not None and found.reward is None and found.error == ""
