"""Policy losses that put something else in the place of PPO's clip."""

import torch

from headrace.services.trainer.algorithms.algorithm import PolicyLoss, PolicyTokens
from headrace.services.trainer.algorithms.losses.policy import log_ratios, loss_of
from headrace.services.trainer.algorithms.parts import ClipRange, ProbabilityBounds, SoftGate


def sapo(tokens: PolicyTokens, options: SoftGate) -> PolicyLoss:
    """`-(4 / tau) sigmoid(tau (r - 1)) A`

    Note: its value at `r = 1` is `-2 A / tau`: do not compare curves of losses

    SAPO (arXiv 2511.20347). The gate has slope 1 at r = 1 and falls off as sech^2(tau (r - 1) / 2): no token is cut,
    far ones fade. tau is `tau_positive` where A > 0, else `tau_negative`.
    """
    advantages = tokens.advantages.detach()
    ratio = log_ratios(tokens.logprobs, tokens.old).exp()
    tau = torch.full_like(ratio, options.tau_negative).masked_fill(advantages > 0, options.tau_positive)
    return loss_of(tokens, -(4 / tau) * torch.sigmoid(tau * (ratio - 1)) * advantages)


def cispo(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """`-sg[clip(r, 1 - clip_low, 1 + clip_high)] A lp`

    Note: relative to 1, as in the paper, verl and slime; TRL's `epsilon_high` is absolute (its 5 is 4 here)

    MiniMax-M1, arXiv 2506.13585. Every token keeps its gradient; the ratio only weighs it. `clip_low` = 1 is no lower
    bound, the paper's setting.
    """
    ratio = log_ratios(tokens.logprobs.detach(), tokens.old).exp()
    weight = ratio.clamp(1 - options.clip_low, 1 + options.clip_high)
    return loss_of(tokens, -weight * tokens.advantages.detach() * tokens.logprobs, weight != ratio)


def dppo(tokens: PolicyTokens, options: ProbabilityBounds) -> PolicyLoss:
    """`-r A`, left out where the probability moved too far; `+ divergence_coef (log r)^2`

    With the binary total variation (arXiv 2602.04879): a trust region on probabilities, not on ratios. A token is left
    out where its probability already rose by more than `bound_high` (A > 0) or fell by more than `bound_low` (A < 0).
    The squared log-ratio is added to all tokens, those too, as prime-rl did with an `adv_tau` of 1 (its IPO, the
    default since August 2026, leaves a token out in either direction for any A).
    """
    advantages = tokens.advantages.detach()
    log_ratio = log_ratios(tokens.logprobs, tokens.old)
    moved = (tokens.logprobs.exp() - tokens.old.exp()).detach()
    left_out = ((advantages > 0) & (moved > options.bound_high)) | ((advantages < 0) & (moved < -options.bound_low))
    gained = torch.where(left_out, 0.0, log_ratio.exp() * advantages)
    return loss_of(tokens, -gained + options.divergence_coef * log_ratio.square(), left_out)
