"""Policy losses per token, not yet aggregated. Axes: tokens = trained tokens of a micro-batch.

In all of them `old` is the anchor of the ratio: the logprobs of the proximal policy, or (bypass) of the policy that
sampled the tokens. It and the advantages carry no gradient.
"""

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyLoss

LOG_RATIO_LIMIT = 20.0
"""exp(20) is still finite after it is multiplied by any advantage."""


@jaxtyped(typechecker=beartype)
def log_ratios(logprobs: Float[Tensor, " tokens"], old: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
    """log(policy / old), cut at +-`LOG_RATIO_LIMIT` (verl, SkyRL and OpenRLHF cut there too; TRL does not)."""
    return (logprobs - old.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


@jaxtyped(typechecker=beartype)
def policy_gradient_loss(
    logprobs: Float[Tensor, " tokens"], old: Float[Tensor, " tokens"], advantages: Float[Tensor, " tokens"]
) -> PolicyLoss:
    """REINFORCE: -A log p (Williams, 1992). No ratio: stale tokens are the business of a correction's weights."""
    return PolicyLoss(
        per_token=-advantages.detach() * logprobs,
        clipped=torch.zeros_like(logprobs, dtype=torch.bool),
        kl=(old - logprobs).detach(),
    )


@jaxtyped(typechecker=beartype)
def clipped_policy_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
    ratio_cap: float = 0.0,
) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347) with separate bounds (DAPO, arXiv 2503.14476).

    Where the advantage is negative the ratio has no upper bound; two options give one, each off at 0:
    `dual_clip` c > 1 caps the loss at c |A| (arXiv 1912.09729; verl always has c = 3, others none), `ratio_cap` >
    1 + clip_high cuts the ratio itself (delta of INTELLECT-2, arXiv 2505.07291; TRL). Both stop the gradient there.
    """
    if dual_clip and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}, must be above 1 (or 0: off), else it also caps unchanged tokens")
    if ratio_cap and ratio_cap <= 1 + clip_high:
        raise ValueError(f"ratio_cap is {ratio_cap}, must be above 1 + clip_high = {1 + clip_high} (or 0: off)")
    advantages = advantages.detach()
    ratio = log_ratios(logprobs, old).exp()
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    per_token = torch.maximum(free, bounded)
    clipped = bounded > free
    caps = [cap for cap in (dual_clip, ratio_cap) if cap]
    if caps:
        capped = (advantages < 0) & (ratio > min(caps))
        per_token = torch.where(capped, -min(caps) * advantages, per_token)
        clipped = clipped | capped
    return PolicyLoss(per_token=per_token, clipped=clipped.detach(), kl=(old - logprobs).detach())


@jaxtyped(typechecker=beartype)
def kl_penalty_policy_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    coef: float,
) -> PolicyLoss:
    """PPO's other variant (arXiv 1707.06347, equation 8): -r A + `coef` KL(old || policy), nothing clipped.

    The KL is estimated from the sampled tokens as r - 1 - log r (k3): as they come from the old policy, its gradient
    is that of the KL in expectation. The paper doubles or halves `coef` by the KL it sees: the caller's business.
    """
    log_ratio = log_ratios(logprobs, old)
    ratio = log_ratio.exp()
    return PolicyLoss(
        per_token=-ratio * advantages.detach() + coef * (log_ratio.expm1() - log_ratio),
        clipped=torch.zeros_like(logprobs, dtype=torch.bool),
        kl=(old - logprobs).detach(),
    )
