"""Advantages of rollouts from their rewards. Axes: rollouts = members of one group."""

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def group_relative_advantages(
    rewards: Float[Tensor, " rollouts"], *, normalize_std: bool, eps: float
) -> Float[Tensor, " rollouts"]:
    """Reward minus the group's mean, over (unbiased std + `eps`) if `normalize_std`.

    GRPO (arXiv 2402.03300, equation 3); without the std it is Dr. GRPO's (arXiv 2503.20783). A group of one has no
    baseline but itself: its advantage is 0 (not its raw reward).
    """
    if len(rewards) < 2:
        return torch.zeros_like(rewards)
    centered = rewards - rewards.mean()
    if not normalize_std:
        return centered
    return centered / (rewards.std(correction=1) + eps)
