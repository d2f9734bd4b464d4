"""Policy losses that put something else in the place of PPO's clip."""

import torch
from torch import Tensor

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
    The squared log-ratio is added to all tokens, those too, as prime-rl did with an `adv_tau` of 1.
    """
    rose, fell = _beyond(tokens, options)
    return _masked(tokens, ((tokens.advantages > 0) & rose) | ((tokens.advantages < 0) & fell), options)


def ipo_mask(tokens: PolicyTokens, options: ProbabilityBounds) -> PolicyLoss:
    """`dppo`, but a token is left out where its probability moved too far in either direction, for any `A`

    Note: prime-rl's IPO, its default since August 2026 (`eps` is both bounds, `kl_tau` is `divergence_coef`); `ipo` is
    a loss of preferences

    prime-rl, `ipo_loss_fn`; there the ratio is taken to the engine's logprobs, as with `anchor = "behaviour"`.
    """
    rose, fell = _beyond(tokens, options)
    return _masked(tokens, rose | fell, options)


def _beyond(tokens: PolicyTokens, options: ProbabilityBounds) -> tuple[Tensor, Tensor]:
    """[tokens] each: whether a token's probability rose, or fell, by more than its bound."""
    moved = (tokens.logprobs.exp() - tokens.old.exp()).detach()
    return moved > options.bound_high, moved < -options.bound_low


def _masked(tokens: PolicyTokens, left_out: Tensor, options: ProbabilityBounds) -> PolicyLoss:
    log_ratio = log_ratios(tokens.logprobs, tokens.old)
    gained = torch.where(left_out, 0.0, log_ratio.exp() * tokens.advantages.detach())
    return loss_of(tokens, -gained + options.divergence_coef * log_ratio.square(), left_out)
