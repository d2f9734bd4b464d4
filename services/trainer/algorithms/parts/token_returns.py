"""Advantages of tokens: discounted returns, alone or against a critic's value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from headrace.services.trainer.algorithms.parts.part import CRITIC, PartOptions, advantage

if TYPE_CHECKING:
    from headrace.services.trainer.algorithms.algorithm import Estimate, Signals


class Discount(PartOptions):
    """The discount of rewards."""

    gamma: float = Field(1.0, gt=0, le=1)
    """Discount factor for each token."""


class Bootstrap(Discount):
    """The stand-in for the rewards after a truncation."""

    bootstrap_truncated: bool = False
    """Continue a rollout cut at max_tokens with the critic's last value, as if it had not ended."""


class GaeOptions(Bootstrap):
    """The lambdas of GAE."""

    lam: float = Field(1.0, ge=0, le=1)
    """For `gae`: lambda of the policy's advantages; 0 is one-step TD, 1 is Monte-Carlo minus value."""
    lam_critic: float = Field(-1.0, ge=-1, le=1)
    """For `gae`: lambda of the critic's returns (VAPO: 1); negative = the value of `lam`."""
    lam_alpha: float = Field(0.0, ge=0)
    """Length-adaptive `lam = 1 - 1 / (lam_alpha x length)` (VAPO: 0.05); 0 = off."""


class KSteps(Bootstrap):
    """The number of rewards before a value."""

    k_steps: int = Field(1, ge=1)
    """For `k_step`: number of rewards before the value."""


@advantage("return", Discount, token_rewards=True)
def discounted(signals: Signals, options: Discount) -> Estimate:
    """Discounted sum of token rewards to the end, `gamma`"""
    from headrace.services.trainer.algorithms.advantages.estimates import monte_carlo_returns
    from headrace.services.trainer.algorithms.algorithm import Estimate

    return Estimate(advantages=monte_carlo_returns(signals, gamma=options.gamma))


@advantage("gae", GaeOptions, needs=CRITIC, token_rewards=True)
def generalized(signals: Signals, options: GaeOptions) -> Estimate:
    """`sum (gamma lam)^k delta_(t+k)`, `delta_t = rew_t + gamma V_(t+1) - V_t`

    see below
    """
    import torch

    from headrace.services.trainer.algorithms.advantages.estimates import for_critic
    from headrace.services.trainer.algorithms.advantages.returns import gae, length_adaptive_lambda
    from headrace.services.trainer.algorithms.algorithm import Estimate

    rewards, values, after = for_critic(signals, options.bootstrap_truncated)
    of_policy = (
        length_adaptive_lambda(signals.lengths, alpha=options.lam_alpha).double()
        if options.lam_alpha
        else torch.full_like(signals.rewards, options.lam)
    )
    advantages, returns = gae(rewards, values, signals.lengths, gamma=options.gamma, lam=of_policy, bootstrap=after)
    if options.lam_critic >= 0:
        of_critic = torch.full_like(signals.rewards, options.lam_critic)
        _, returns = gae(rewards, values, signals.lengths, gamma=options.gamma, lam=of_critic, bootstrap=after)
    return Estimate(advantages=advantages, returns=returns)


@advantage("k_step", KSteps, needs=CRITIC, token_rewards=True)
def k_step(signals: Signals, options: KSteps) -> Estimate:
    """`k_steps` rewards, then the value, minus the value now; 1 is one-step TD"""
    from headrace.services.trainer.algorithms.advantages.estimates import for_critic
    from headrace.services.trainer.algorithms.advantages.returns import k_step_advantages
    from headrace.services.trainer.algorithms.algorithm import Estimate

    rewards, values, after = for_critic(signals, options.bootstrap_truncated)
    advantages = k_step_advantages(
        rewards, values, signals.lengths, gamma=options.gamma, k=options.k_steps, bootstrap=after
    )
    return Estimate(advantages=advantages, returns=advantages + values)


@advantage("monte_carlo", Discount, needs=CRITIC, token_rewards=True)
def monte_carlo(signals: Signals, options: Discount) -> Estimate:
    """The return minus the value; `gae` with `lam = 1`"""
    from headrace.services.trainer.algorithms.advantages.estimates import for_critic
    from headrace.services.trainer.algorithms.advantages.returns import discounted_returns
    from headrace.services.trainer.algorithms.algorithm import Estimate

    rewards, values, _ = for_critic(signals, False)
    returns = discounted_returns(rewards, signals.lengths, gamma=options.gamma)
    return Estimate(advantages=returns - values, returns=returns)
