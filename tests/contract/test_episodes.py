"""Episodes on the wire: segments and turns divide the tokens, and what failed cannot be scored."""

import math
from dataclasses import replace

import numpy as np
import pytest

from headrace.wire.contracts import (
    EnvironmentReward,
    EnvironmentTask,
    Episode,
    FinishReason,
    RolloutGroup,
    Score,
    ScoredGroup,
    Segment,
)
from headrace.wire.errors import ContractError
from tests import builders

PLAYED = builders.played_rollout()
CONTEXT = np.array([5], np.int32)


def episode(*, starts: tuple[int, ...] = (0, 3), ends: tuple[int, ...] = (1, 3, 5), **others: object) -> Episode:
    segments = tuple(Segment(start=start, context_ids=CONTEXT) for start in starts)
    return Episode(segments=segments, turn_ends=ends, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: episode(starts=()), "bad_segments"),
        (lambda: episode(starts=(1, 3)), "bad_segments"),
        (lambda: episode(starts=(0, 3, 3)), "bad_segments"),
        (lambda: episode(starts=(0, 5)), "bad_segments"),
        (lambda: episode(starts=(0, 1), ends=(1, 3, 5)), "bad_segments"),  # The tool's token begins no segment.
        (lambda: episode(ends=()), "bad_turns"),
        (lambda: episode(ends=(1, 3)), "bad_turns"),
        (lambda: episode(ends=(1, 5)), "bad_turns"),  # The first segment ends within a turn.
        (lambda: episode(ends=(1, 2, 3, 5)), "bad_turns"),  # A turn of the tool's token.
        (lambda: episode(ends=(1, 3, 3, 5)), "bad_turns"),
        (lambda: episode(ends=(1, 3, 5, 6)), "bad_turns"),
        (lambda: episode(turn_rewards=(1.0,)), "length_mismatch"),
        (lambda: episode(turn_rewards=(1.0, math.inf, 0.0)), "bad_reward"),
    ],
)
def test_segments_and_turns_that_do_not_divide_the_tokens_are_refused(made, code: str) -> None:
    with pytest.raises(ContractError, match=code):
        replace(PLAYED, episode=made())


def test_an_episode_may_have_no_turn_only_if_it_was_cut_off() -> None:
    lost = builders.lost_rollout()
    assert lost.min_version is None and lost.trained_tokens == 0 and lost.must_abstain
    limited = replace(lost, finish_reason=FinishReason.TURN_LIMIT)
    assert limited.must_abstain and not limited.finish_reason.abstains
    with pytest.raises(ContractError, match="empty"):
        replace(lost, finish_reason=FinishReason.STOP)
    with pytest.raises(ContractError, match="length_mismatch"):
        replace(lost, episode=episode())
    with pytest.raises(ContractError, match="empty"):
        replace(lost, finish_reason=FinishReason.LENGTH, episode=None)


@pytest.mark.parametrize("reason", [one for one in FinishReason if one not in ("stop", "length")])
def test_episode_finish_reasons_are_valid_only_for_episodes(reason: FinishReason) -> None:
    with pytest.raises(ContractError, match="bad_finish_reason"):
        replace(builders.rollout(), finish_reason=reason)


@pytest.mark.parametrize("reason", [one for one in FinishReason if one.abstains])
def test_an_episode_that_failed_cannot_have_a_score(reason: FinishReason) -> None:
    rollouts = (PLAYED, replace(PLAYED, rollout_id="test/g00000000/1", finish_reason=reason))
    group = replace(builders.played_group(), rollouts=rollouts)
    first = Score(rollout_id=rollouts[0].rollout_id, value=1.0)
    ScoredGroup(group=group, scores=(first, Score(rollout_id=rollouts[1].rollout_id, value=None)))
    with pytest.raises(ContractError, match="bad_score"):
        ScoredGroup(group=group, scores=(first, Score(rollout_id=rollouts[1].rollout_id, value=0.0)))


def test_only_environment_groups_hold_episodes_and_their_prompts_hold_no_ids() -> None:
    played = builders.played_group()
    with pytest.raises(ContractError, match="bad_environment"):
        replace(played, prompt=builders.prompt())
    with pytest.raises(ContractError, match="bad_environment"):
        RolloutGroup(prompt=played.prompt, rollouts=(builders.rollout(), builders.rollout(0, 1)))
    with pytest.raises(ContractError, match="bad_environment"):
        replace(builders.prompt(), environment=played.prompt.environment)
    with pytest.raises(ContractError, match="empty"):
        replace(played.prompt, environment=None)


@pytest.mark.parametrize(("name", "task"), [("", "{}"), ("calc", "[1]"), ("calc", "{")])
def test_a_task_is_a_json_object_of_a_named_environment(name: str, task: str) -> None:
    with pytest.raises(ContractError, match="bad_environment"):
        EnvironmentTask(name=name, digest="d", task_json=task)


@pytest.mark.parametrize(
    "reward", [{"value": math.nan}, {"components": {"found": math.inf}}, {"metrics": {"seconds": math.nan}}]
)
def test_a_reward_of_an_environment_is_finite(reward: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="bad_reward"):
        EnvironmentReward(**reward)  # type: ignore[arg-type]


def test_a_completion_has_one_segment_and_an_episode_has_its_own_segments() -> None:
    prompt = builders.prompt()
    (only,) = builders.rollout().segments(prompt)
    assert only.start == 0 and only.context_ids.tolist() == prompt.token_ids.tolist()
    assert [(one.start, one.context_ids.tolist()) for one in PLAYED.segments(prompt)] == [(0, [5, 6]), (3, [5, 7, 8])]
    assert PLAYED.episode is not None and PLAYED.episode.ends(5) == (3, 5)
