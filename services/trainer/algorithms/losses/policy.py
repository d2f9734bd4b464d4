"""Policy losses per token, not yet aggregated, with PPO's clip, its penalty, or no ratio at all.

In all policy losses `tokens.old` is the anchor of the ratio: the logprobs of the proximal policy, or (bypass) of the
policy that sampled the tokens. It and the advantages carry no gradient. The first line of each docstring, and its
`Note:`, are the loss's row in docs/algorithms.md.
"""

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyLoss, PolicyTokens
from headrace.services.trainer.algorithms.parts import KlPenalty, PartOptions, PpoClip, TrustRegion

LOG_RATIO_LIMIT = 20.0
"""exp(20) is still finite after it is multiplied by any advantage."""


@jaxtyped(typechecker=beartype)
def log_ratios(logprobs: Float[Tensor, " tokens"], old: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
    """log(policy / old), cut at +-`LOG_RATIO_LIMIT` (verl, SkyRL and OpenRLHF cut there too; TRL does not)."""
    return (logprobs - old.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def loss_of(tokens: PolicyTokens, per_token: Tensor, clipped: Tensor | None = None) -> PolicyLoss:
    """The loss with its KL to `tokens.old`; `clipped` None: no bound can win."""
    if clipped is None:
        clipped = torch.zeros_like(tokens.logprobs, dtype=torch.bool)
    return PolicyLoss(per_token=per_token, clipped=clipped.detach(), kl=(tokens.old - tokens.logprobs).detach())


def policy_gradient(tokens: PolicyTokens, _options: PartOptions) -> PolicyLoss:
    """`-A lp`

    REINFORCE (Williams, 1992). No ratio: stale tokens are the business of a correction's weights.
    """
    return loss_of(tokens, -tokens.advantages.detach() * tokens.logprobs)


def ppo_clip(tokens: PolicyTokens, options: PpoClip) -> PolicyLoss:
    """`max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)`

    Note: verl always has a dual clip of 3; TRL knows only the cap of the ratio (`delta`)

    PPO's surrogate (arXiv 1707.06347) with separate bounds (DAPO, arXiv 2503.14476). Where the advantage is negative
    the ratio has no upper bound; two options give one, each off at 0: `dual_clip` c > 1 caps the loss at c |A|
    (arXiv 1912.09729), `ratio_cap` > 1 + clip_high cuts the ratio itself (delta of INTELLECT-2, arXiv 2505.07291).
    Both stop the gradient there.
    """
    advantages = tokens.advantages.detach()
    ratio = log_ratios(tokens.logprobs, tokens.old).exp()
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - options.clip_low, 1 + options.clip_high) * advantages
    per_token = torch.maximum(free, bounded)
    clipped = bounded > free
    caps = [cap for cap in (options.dual_clip, options.ratio_cap) if cap]
    if caps:
        capped = (advantages < 0) & (ratio > min(caps))
        per_token = torch.where(capped, -min(caps) * advantages, per_token)
        clipped = clipped | capped
    return loss_of(tokens, per_token, clipped)


def ppo_kl(tokens: PolicyTokens, options: KlPenalty) -> PolicyLoss:
    """`-r A + penalty_coef (r - 1 - log r)`

    PPO's other variant (arXiv 1707.06347, equation 8), nothing clipped. The KL(old || policy) is estimated from the
    sampled tokens (k3): as they come from the old policy, its gradient is the KL's in expectation. The paper
    doubles or halves the coefficient by the KL it sees.
    """
    log_ratio = log_ratios(tokens.logprobs, tokens.old)
    sampled = -log_ratio.exp() * tokens.advantages.detach()
    return loss_of(tokens, sampled + options.penalty_coef * (log_ratio.expm1() - log_ratio))


def trpo(tokens: PolicyTokens, _options: TrustRegion) -> PolicyLoss:
    """`-r A`, its step cut to a trust region in place of an optimizer's

    The surrogate of TRPO (arXiv 1502.05477); the bound is kept by `headrace.services.trainer.step.trust_region`.
    """
    return loss_of(tokens, -log_ratios(tokens.logprobs, tokens.old).exp() * tokens.advantages.detach())
