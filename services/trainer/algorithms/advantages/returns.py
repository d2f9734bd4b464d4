"""Advantages of tokens: discounted returns, alone or against a critic's value. All float64.

Estimates carry no gradient, and their `returns` are made before any whitening: they are what the critic learns. The
first line of each part's docstring, and its `Note:`, are its row in docs/algorithms.md.
"""

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.parts import Bootstrap, Discount, GaeOptions, KSteps
from headrace.services.trainer.algorithms.segments import ahead, carry_back, is_last, last_tokens, spread


def discounted(signals: Signals, options: Discount) -> Estimate:
    """Discounted sum of token rewards to the end, `gamma`"""
    return Estimate(advantages=monte_carlo_returns(signals, options))


def gae(signals: Signals, options: GaeOptions) -> Estimate:
    """`sum (gamma lam)^k delta_(t+k)`, `delta_t = rew_t + gamma V_(t+1) - V_t`

    Note: see below

    arXiv 1506.02438. VAPO's lambda for the policy is 1 - 1 / (alpha length), alpha 0.05 (arXiv 2504.05118); alpha
    length counts as at least 1, as NeMo RL has it: else lambda would be negative for a short rollout.
    """
    values, delta = _deltas(signals, options)

    def summed(lam: Tensor) -> Tensor:
        factors = options.gamma * spread(lam, signals.lengths)
        return carry_back(delta, factors, torch.zeros_like(signals.rewards), signals.lengths)

    of_policy = torch.full_like(signals.rewards, options.lam)
    if options.lam_alpha:
        of_policy = (1 - 1 / (options.lam_alpha * signals.lengths).clamp(min=1.0)).double()
    advantages = summed(of_policy)
    of_critic = advantages
    if options.lam_critic >= 0:
        of_critic = summed(torch.full_like(signals.rewards, options.lam_critic))
    return Estimate(advantages=advantages, returns=of_critic + values)


def k_step(signals: Signals, options: KSteps) -> Estimate:
    """`k_steps` rewards, then the value, minus the value now; 1 is one-step TD

    Near the end it takes the rewards that are left. As many passes as `k_steps` (at most the longest rollout).
    """
    values, delta = _deltas(signals, options)
    inside = options.gamma * (~is_last(signals.lengths, len(values))).to(values.dtype)
    advantages, weight = delta, torch.ones_like(values)
    for step in range(1, min(options.k_steps, int(signals.lengths.max()) if len(signals.lengths) else 0)):
        weight = weight * ahead(inside, step - 1)
        advantages = advantages + weight * ahead(delta, step)
    return Estimate(advantages=advantages, returns=advantages + values)


def monte_carlo(signals: Signals, options: Discount) -> Estimate:
    """The return minus the value; `gae` with `lam = 1`"""
    assert signals.values is not None
    returns = monte_carlo_returns(signals, options)
    return Estimate(advantages=returns - signals.values.double(), returns=returns)


def monte_carlo_returns(signals: Signals, options: Discount) -> Tensor:
    """[tokens]: the returns that a critic is pretrained on."""
    return discounted_returns(token_rewards(signals), signals.lengths, gamma=options.gamma)


@jaxtyped(typechecker=beartype)
def discounted_returns(
    rewards: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"], *, gamma: float
) -> Float[Tensor, " tokens"]:
    """Discounted sum of the rewards from each token to its rollout's end (Monte-Carlo)."""
    return carry_back(rewards, torch.full_like(rewards, gamma), rewards.new_zeros(len(lengths)), lengths)


def token_rewards(signals: Signals) -> Tensor:
    """[tokens]: the scores of tokens, the outcome at the last of each rollout, less the penalties of each.

    An abstention is placed as 0: that rollout has no weight in any loss.
    """
    outcomes = signals.rewards.nan_to_num(nan=0.0)
    rewards = outcomes.new_zeros(int(signals.lengths.sum()))
    rewards = rewards.index_copy(0, last_tokens(signals.lengths), outcomes[signals.lengths > 0])
    if signals.token_scores is not None:
        rewards = rewards + signals.token_scores.nan_to_num(0.0)
    return rewards if signals.penalties is None else rewards - signals.penalties.double()


def _deltas(signals: Signals, options: Bootstrap) -> tuple[Tensor, Tensor]:
    """[tokens] each: the critic's values, and `rew_t + gamma V_(t+1) - V_t`.

    The value after the last token is 0 for a rollout that ended (verl and OpenRLHF take 0 always), the critic's last
    for one that was cut (AReaL), if `bootstrap_truncated`.
    """
    assert signals.values is not None
    values, ends = signals.values.double(), last_tokens(signals.lengths)
    cut = signals.truncated[signals.lengths > 0] & options.bootstrap_truncated
    following = ahead(values, 1).index_copy(0, ends, torch.where(cut, values[ends], 0.0))
    return values, token_rewards(signals) + options.gamma * following - values
