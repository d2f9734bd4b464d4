"""GRPO: group-relative advantages and the clipped surrogate (DeepSeekMath, arXiv 2402.03300).

With `normalize_std = false` and the aggregation `seq-mean-token-sum-norm` it is Dr. GRPO (arXiv 2503.20783).
"""

from collections.abc import Sequence

from torch import Tensor

from services.trainer.algorithms.advantages import group_relative_advantages
from services.trainer.algorithms.algorithm import Algorithm, PolicyTokens
from services.trainer.algorithms.policy_loss import PolicyLoss, clipped_policy_loss


def grpo(*, clip_low: float, clip_high: float, normalize_std: bool, std_eps: float) -> Algorithm:
    """GRPO with its hyper-parameters bound."""

    def advantages(rewards: Sequence[Tensor]) -> list[Tensor]:
        return [group_relative_advantages(group, normalize_std=normalize_std, eps=std_eps) for group in rewards]

    def policy_loss(tokens: PolicyTokens) -> PolicyLoss:
        return clipped_policy_loss(
            tokens.logprobs, tokens.behaviour_logprobs, tokens.advantages, clip_low=clip_low, clip_high=clip_high
        )

    return Algorithm(advantages=advantages, policy_loss=policy_loss)
