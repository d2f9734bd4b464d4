"""Policy losses whose ratio is that of the whole rollout. Axes: tokens = trained tokens, rollouts = their owners.

Source: GSPO, arXiv 2507.18071. Its clip range is 3e-4 / 4e-4: the mean log-ratio of a rollout is orders of magnitude
smaller than a token's, so a PPO-sized 0.2 never clips (verl, TRL and OpenRLHF all leave 0.2 as the default). Meant for
the aggregation `seq-mean-token-mean`.
"""

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyLoss
from headrace.services.trainer.algorithms.losses.policy import LOG_RATIO_LIMIT
from headrace.services.trainer.algorithms.segments import segment_mean, spread


@jaxtyped(typechecker=beartype)
def sequence_ratios(
    logprobs: Float[Tensor, " tokens"], old: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"]
) -> Float[Tensor, " rollouts"]:
    """The exp of each rollout's mean log-ratio (GSPO's s); 1 for an empty one."""
    return segment_mean(logprobs - old.detach(), lengths).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


@jaxtyped(typechecker=beartype)
def gspo_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """-min(s A, clip(s) A), the rollout's loss at each of its tokens; A is the mean of its tokens' advantages."""
    ratios = sequence_ratios(logprobs, old, lengths)
    means = segment_mean(advantages.detach(), lengths)
    free = -ratios * means
    bounded = -ratios.clamp(1 - clip_low, 1 + clip_high) * means
    return PolicyLoss(
        per_token=spread(torch.maximum(free, bounded), lengths),
        clipped=spread((bounded > free).detach(), lengths),
        kl=(old - logprobs).detach(),
    )


@jaxtyped(typechecker=beartype)
def gspo_token_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """GSPO-token (equation 13): the rollout's ratio in value, each token's own in gradient, so advantages may differ.

    Where they do not, value and gradient are GSPO's. This is what verl runs under the name of GSPO.
    """
    advantages = advantages.detach()
    ratios = spread(sequence_ratios(logprobs.detach(), old, lengths), lengths) * (logprobs - logprobs.detach()).exp()
    free = -ratios * advantages
    bounded = -ratios.clamp(1 - clip_low, 1 + clip_high) * advantages
    return PolicyLoss(
        per_token=torch.maximum(free, bounded),
        clipped=(bounded > free).detach(),
        kl=(old - logprobs).detach(),
    )
