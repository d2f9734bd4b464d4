"""Rollouts as samples: what must abstain is never judged; an episode has ids only where one context has them all."""

from dataclasses import replace

from headrace.services.reward.rubric.rubric import Result
from headrace.services.reward.rubric.samples import samples_of, scores_of
from headrace.wire.contracts import FinishReason, Segment
from tests import builders

GROUP = builders.played_group()


def test_a_failed_episode_is_not_scored_and_abstains_with_its_reason() -> None:
    (sample,) = samples_of(GROUP, "g")
    assert sample.name == GROUP.rollouts[0].rollout_id and sample.episode is GROUP.rollouts[0].episode
    played, lost = scores_of(GROUP, [Result(value=0.5)])
    assert played.value == 0.5 and lost.value is None
    assert lost.reason == "the episode ended: environment_error: ValueError: no such file (game.py:12)"


def test_a_score_stays_with_its_rollout_when_one_before_it_failed() -> None:
    lost, played = builders.lost_rollout(member=0), replace(GROUP.rollouts[0], rollout_id="test/g00000000/1")
    group = replace(GROUP, rollouts=(lost, played))
    first, second = scores_of(group, [Result(value=0.25)])
    assert (first.value, second.value) == (None, 0.25) and second.rollout_id == "test/g00000000/1"


def test_token_scorers_get_ids_only_for_single_segment_episodes() -> None:
    (several,) = samples_of(GROUP, "g")
    assert several.prompt_ids is None and several.tokens == 4
    episode = GROUP.rollouts[0].episode
    assert episode is not None
    one = replace(episode, segments=(Segment(start=0, context_ids=episode.segments[0].context_ids),))
    (sample,) = samples_of(replace(GROUP, rollouts=(replace(GROUP.rollouts[0], episode=one), GROUP.rollouts[1])), "g")
    assert sample.prompt_ids is not None and sample.prompt_ids.tolist() == [5, 6]


def test_a_limit_of_turns_is_a_truncation() -> None:
    limited = replace(GROUP.rollouts[0], finish_reason=FinishReason.TURN_LIMIT)
    (sample,) = samples_of(replace(GROUP, rollouts=(limited, GROUP.rollouts[1])), "g")
    assert sample.truncated
