"""Policy losses whose ratio is that of each token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from headrace.services.trainer.algorithms.parts.baselines import NoOptions
from headrace.services.trainer.algorithms.parts.part import PartOptions, policy_loss

if TYPE_CHECKING:
    from headrace.services.trainer.algorithms.algorithm import PolicyLoss, PolicyTokens


class ClipRange(PartOptions):
    """The range of a ratio."""

    clip_low: float = Field(0.2, gt=0, le=1)
    """The ratio's floor is `1 - clip_low`."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio's ceiling is `1 + clip_high`; a value above `clip_low` (DAPO: 0.28) preserves exploration."""


class PpoClip(ClipRange):
    """PPO's range, and the bounds of a bad token."""

    dual_clip: float = Field(0.0, ge=0)
    """For `ppo_clip`: limit of the loss of a negative advantage, as a multiple of it (verl: 3); 0 = off."""
    ratio_cap: float = Field(0.0, ge=0)
    """For `ppo_clip`: upper limit of the ratio for a negative advantage (INTELLECT-2's delta); 0 = off."""

    @model_validator(mode="after")
    def _bounds_act(self) -> PpoClip:
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(
                f"dual_clip = {self.dual_clip:g} would also cap tokens that have not moved: above 1 (3 is usual), or 0"
            )
        if self.ratio_cap and self.ratio_cap <= 1 + self.clip_high:
            raise ValueError(
                f"ratio_cap = {self.ratio_cap:g} must be above 1 + clip_high = {1 + self.clip_high:g}, or 0"
            )
        return self


class KlPenalty(PartOptions):
    """The weight of a penalty."""

    penalty_coef: float = Field(0.1, ge=0)
    """For `ppo_kl`: weight of the KL to the old policy, which replaces the clip."""


class SoftGate(PartOptions):
    """The temperatures of SAPO."""

    tau_positive: float = Field(1.0, gt=0)
    """For `sapo`: temperature for positive advantages."""
    tau_negative: float = Field(1.05, gt=0)
    """For `sapo`: temperature for negative advantages."""


class ProbabilityBounds(PartOptions):
    """The trust region of DPPO."""

    bound_low: float = Field(0.2, gt=0, le=1)
    """For `dppo`: how far a probability may fall before its token is left out."""
    bound_high: float = Field(0.2, gt=0, le=1)
    """For `dppo`: how far a probability may rise before its token is left out."""
    divergence_coef: float = Field(1e-3, ge=0)
    """For `dppo`: weight of the squared log-ratio."""


@policy_loss("policy_gradient", NoOptions)
def policy_gradient(tokens: PolicyTokens, _options: NoOptions) -> PolicyLoss:
    """`-A lp`"""
    from headrace.services.trainer.algorithms.losses.policy import policy_gradient_loss

    return policy_gradient_loss(tokens.logprobs, tokens.old, tokens.advantages)


@policy_loss("ppo_clip", PpoClip)
def ppo_clip(tokens: PolicyTokens, options: PpoClip) -> PolicyLoss:
    """`max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)`

    verl always has a dual clip of 3; TRL knows only the cap of the ratio (`delta`)
    """
    from headrace.services.trainer.algorithms.losses.policy import clipped_policy_loss

    return clipped_policy_loss(
        tokens.logprobs,
        tokens.old,
        tokens.advantages,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        dual_clip=options.dual_clip,
        ratio_cap=options.ratio_cap,
    )


@policy_loss("ppo_kl", KlPenalty)
def ppo_kl(tokens: PolicyTokens, options: KlPenalty) -> PolicyLoss:
    """`-r A + penalty_coef (r - 1 - log r)`"""
    from headrace.services.trainer.algorithms.losses.policy import kl_penalty_policy_loss

    return kl_penalty_policy_loss(tokens.logprobs, tokens.old, tokens.advantages, coef=options.penalty_coef)


@policy_loss("sapo", SoftGate)
def sapo(tokens: PolicyTokens, options: SoftGate) -> PolicyLoss:
    """`-(4 / tau) sigmoid(tau (r - 1)) A`

    its value at `r = 1` is `-2 A / tau`: do not compare curves of losses
    """
    from headrace.services.trainer.algorithms.losses.token import sapo_loss

    return sapo_loss(
        tokens.logprobs,
        tokens.old,
        tokens.advantages,
        tau_positive=options.tau_positive,
        tau_negative=options.tau_negative,
    )


@policy_loss("cispo", ClipRange)
def cispo(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """`-sg[clip(r, 1 - clip_low, 1 + clip_high)] A lp`

    relative to 1, as in the paper, verl and slime; TRL's `epsilon_high` is absolute (its 5 is 4 here)
    """
    from headrace.services.trainer.algorithms.losses.token import cispo_loss

    return cispo_loss(
        tokens.logprobs, tokens.old, tokens.advantages, clip_low=options.clip_low, clip_high=options.clip_high
    )


@policy_loss("dppo", ProbabilityBounds)
def dppo(tokens: PolicyTokens, options: ProbabilityBounds) -> PolicyLoss:
    """`-r A`, left out where the probability moved too far; `+ divergence_coef (log r)^2`"""
    from headrace.services.trainer.algorithms.losses.token import dppo_loss

    return dppo_loss(
        tokens.logprobs,
        tokens.old,
        tokens.advantages,
        bound_low=options.bound_low,
        bound_high=options.bound_high,
        kl_coef=options.divergence_coef,
    )
