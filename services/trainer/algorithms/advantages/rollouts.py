"""Advantages of rollouts from their rewards. Axes: rollouts = members of one group.

A reward of NaN is an abstention: that rollout could not be scored. It is left out of every mean and std and its own
advantage is 0 (as TRL does). A baseline made of the group needs two scored rollouts: with fewer, all advantages are 0.
"""

from collections.abc import Callable

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def group_relative_advantages(
    rewards: Float[Tensor, " rollouts"], *, normalize_std: bool, eps: float
) -> Float[Tensor, " rollouts"]:
    """Reward minus the group's mean, over (unbiased std + `eps`) if `normalize_std`.

    GRPO (arXiv 2402.03300, equation 3); without the std it is Dr. GRPO's (arXiv 2503.20783). A group of one has no
    baseline but itself: its advantage is 0 (verl leaves its raw reward).
    """

    def relative(scored: Tensor) -> Tensor:
        centered = scored - scored.mean()
        return centered / (scored.std(correction=1) + eps) if normalize_std else centered

    return _of_scored(rewards, relative)


@jaxtyped(typechecker=beartype)
def mean_baseline_advantages(rewards: Float[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """Reward minus the group's mean: REINFORCE++-baseline before the batch is whitened (arXiv 2501.03262)."""
    return _of_scored(rewards, lambda scored: scored - scored.mean())


@jaxtyped(typechecker=beartype)
def rloo_advantages(rewards: Float[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean of the *other* rollouts' (RLOO, arXiv 2402.14740) = G / (G - 1) (R - mean)."""
    return _of_scored(rewards, lambda scored: (scored - scored.mean()) * (len(scored) / (len(scored) - 1)))


@jaxtyped(typechecker=beartype)
def opo_advantages(
    rewards: Float[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"]
) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean reward weighted by length, the baseline of least variance (OPO, arXiv 2505.23585)."""
    weights = lengths[~rewards.isnan()].to(rewards.dtype)
    return _of_scored(rewards, lambda scored: scored - (weights * scored).sum() / weights.sum().clamp(min=1))


@jaxtyped(typechecker=beartype)
def remax_advantages(rewards: Float[Tensor, " rollouts"], baseline: float) -> Float[Tensor, " rollouts"]:
    """Reward minus that of the prompt's greedy completion (ReMax, arXiv 2310.10505); all 0 if that one is NaN."""
    return (rewards - baseline).nan_to_num(nan=0.0)


@jaxtyped(typechecker=beartype)
def process_advantages(
    token_scores: Float[Tensor, " tokens"], *, normalize_std: bool, eps: float
) -> Float[Tensor, " tokens"]:
    """What each step of a rollout earned relative to all steps of the group; 0 at the other tokens.

    DeepSeekMath's process supervision (arXiv 2402.03300, section 4.1.3): (r - mean) / (std + `eps`) over the rewards of
    all steps of all rollouts. A token's advantage is the sum over the steps from it on, which the caller takes. A token
    that has a score ends a step, whatever the step is worth; NaN: it has none.
    """
    return group_relative_advantages(token_scores, normalize_std=normalize_std, eps=eps)


def _of_scored(rewards: Tensor, advantages: Callable[[Tensor], Tensor]) -> Tensor:
    scored = ~rewards.isnan()
    made = torch.zeros_like(rewards)
    if int(scored.sum()) >= 2:
        made[scored] = advantages(rewards[scored])
    return made
