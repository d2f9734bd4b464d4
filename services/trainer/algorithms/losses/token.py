"""Policy losses that put something else in the place of PPO's clip. Axes: tokens = trained tokens of a micro-batch."""

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyLoss
from headrace.services.trainer.algorithms.losses.policy import log_ratios


@jaxtyped(typechecker=beartype)
def sapo_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    tau_positive: float,
    tau_negative: float,
) -> PolicyLoss:
    """SAPO (arXiv 2511.20347): -f(r) A with the soft gate f(r) = 4 / tau sigmoid(tau (r - 1)).

    f has slope 1 at r = 1 and falls off as sech^2(tau (r - 1) / 2): no token is cut, far ones fade. tau is
    `tau_positive` where A > 0, else `tau_negative`. The *value* at r = 1 is -2 A / tau: do not compare loss curves
    with those of other algorithms.
    """
    advantages = advantages.detach()
    ratio = log_ratios(logprobs, old).exp()
    tau = torch.full_like(ratio, tau_negative).masked_fill(advantages > 0, tau_positive)
    return PolicyLoss(
        per_token=-(4 / tau) * torch.sigmoid(tau * (ratio - 1)) * advantages,
        clipped=torch.zeros_like(logprobs, dtype=torch.bool),
        kl=(old - logprobs).detach(),
    )


@jaxtyped(typechecker=beartype)
def cispo_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """CISPO (MiniMax-M1, arXiv 2506.13585): -sg[clip(r, 1 - clip_low, 1 + clip_high)] A log p.

    Every token keeps its gradient; the ratio only weighs it. Bounds are relative to 1, as in the paper, verl and
    slime; `clip_low` = 1 is no lower bound, the paper's setting. TRL clips above only, at the absolute value: its 5.0
    is `clip_high` = 4 here.
    """
    ratio = log_ratios(logprobs.detach(), old).exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return PolicyLoss(
        per_token=-weight * advantages.detach() * logprobs,
        clipped=weight != ratio,
        kl=(old - logprobs).detach(),
    )


@jaxtyped(typechecker=beartype)
def dppo_loss(
    logprobs: Float[Tensor, " tokens"],
    old: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    bound_low: float,
    bound_high: float,
    kl_coef: float,
) -> PolicyLoss:
    """DPPO with the binary total variation (arXiv 2602.04879): a trust region on probabilities, not on ratios.

    A token is left out where its probability already rose by more than `bound_high` (A > 0) or fell by more than
    `bound_low` (A < 0); else -r A. To all tokens, those too, `kl_coef` (log r)^2 is added, as prime-rl did with
    an `adv_tau` of 1 (its IPO, the default since August 2026, leaves a token out in either direction whatever A is).
    """
    advantages = advantages.detach()
    log_ratio = log_ratios(logprobs, old)
    moved = (logprobs.exp() - old.exp()).detach()
    left_out = ((advantages > 0) & (moved > bound_high)) | ((advantages < 0) & (moved < -bound_low))
    gained = torch.where(left_out, 0.0, log_ratio.exp() * advantages)
    return PolicyLoss(
        per_token=-gained + kl_coef * log_ratio.square(),
        clipped=left_out,
        kl=(old - logprobs).detach(),
    )
