"""`environment`: the reward that the environment itself gave to its episode, with those of single turns."""

import math

import numpy as np

from headrace.services.reward.scorer import Sample, Verdict
from headrace.services.reward.scorers.rules.functions import rule
from headrace.wire.contracts import Episode


def _environment(sample: Sample) -> Verdict:
    """The reward of the episode; a turn's reward stands on the turn's last token. Abstains where there is none."""
    if sample.episode is None:
        return Verdict.abstain("it was not played in an environment")
    reward = sample.episode.reward
    if reward is None or reward.value is None:
        return Verdict.abstain("the environment gave no reward")
    return Verdict(
        value=reward.value,
        parts={**reward.components, **reward.metrics},
        token_scores=_of_turns(sample.episode, 0 if sample.completion_ids is None else len(sample.completion_ids)),
    )


def _of_turns(episode: Episode, tokens: int) -> np.ndarray | None:
    """float32 [completion], NaN where no turn with a reward ends; None if no turn has one."""
    if not any(not math.isnan(one) for one in episode.turn_rewards):
        return None
    found = np.full(tokens, np.nan, np.float32)
    found[np.array(episode.turn_ends) - 1] = episode.turn_rewards
    return found


environment = rule(_environment, low=-1000.0, high=1000.0)
