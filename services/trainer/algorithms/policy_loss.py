"""Policy losses per token, not yet aggregated. Axes: tokens = completion tokens of a micro-batch."""

from dataclasses import dataclass

import torch
from beartype import beartype
from jaxtyping import Bool, Float, jaxtyped
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""exp(20) is still finite after it is multiplied by any advantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss of each token and what the metrics need of it."""

    per_token: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"]
    """Where the clipped branch won: these tokens have no gradient."""
    kl: Float[Tensor, " tokens"]
    """Detached k1 estimate of KL(behaviour || policy), nats."""


@jaxtyped(typechecker=beartype)
def clipped_policy_loss(
    logprobs: Float[Tensor, " tokens"],
    behaviour_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347) with separate bounds (DAPO, arXiv 2503.14476).

    The ratio is taken against the policy that sampled the tokens, as the engine reported it: one forward pass a step,
    and stale tokens are corrected by the same ratio.
    """
    log_ratio = (logprobs - behaviour_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return PolicyLoss(
        per_token=torch.maximum(free, bounded),
        clipped=(bounded > free).detach(),
        kl=(behaviour_logprobs - logprobs).detach(),
    )
