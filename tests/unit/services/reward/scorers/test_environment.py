"""The scorer `environment` reads what the environment gave, and puts rewards of turns where their turns end."""

from dataclasses import replace

import numpy as np

from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorer import Context, Verdict
from headrace.services.reward.scorers.registry import build_scorer
from headrace.wire.contracts import Episode
from tests import builders

GROUP = builders.played_group()


async def judged(episode: Episode | None) -> Verdict:
    (sample,) = samples_of(GROUP, "g")
    scorer = build_scorer("environment", {}, Context(component="environment"))
    (verdict,) = await scorer.score([replace(sample, episode=episode)])
    return verdict


async def test_an_environment_reward_keeps_its_parts_and_per_turn_values() -> None:
    verdict = await judged(GROUP.rollouts[0].episode)
    assert (verdict.value, verdict.parts) == (0.75, {"found": 1.0, "calls": 2.0})
    assert verdict.token_scores is not None and verdict.token_scores.dtype == np.float32
    np.testing.assert_array_equal(verdict.token_scores, np.array([0.5, np.nan, np.nan, np.nan, 1.0], np.float32))


async def test_the_scorer_abstains_if_the_environment_gave_no_reward() -> None:
    episode = GROUP.rollouts[0].episode
    assert episode is not None
    none = await judged(replace(episode, reward=None))
    assert none.value is None and none.reason == "the environment gave no reward" and not none.failed
    assert (await judged(None)).reason == "it was not played in an environment"
