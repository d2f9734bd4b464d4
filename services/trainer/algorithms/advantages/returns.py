"""Advantages and returns of tokens from rewards and values of tokens, of a whole batch.

Axes: tokens = trained tokens, rollout after rollout; rollouts = their owners. No result carries a gradient. `returns`
are made before any whitening: they are what the critic learns.
"""

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.segments import ahead, carry_back, is_last, last_tokens, spread


@jaxtyped(typechecker=beartype)
def gae(
    rewards: Float[Tensor, " tokens"],
    values: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    gamma: float,
    lam: Float[Tensor, " rollouts"],
    bootstrap: Float[Tensor, " rollouts"],
    mask: Bool[Tensor, " tokens"] | None = None,
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
    """Generalized advantage estimates (arXiv 1506.02438) and returns = advantages + values.

    `bootstrap` is the value after the last token: 0 for a rollout that ended (verl and OpenRLHF take 0 always), the
    critic's for one that was cut (AReaL). Tokens where `mask` is False are no steps: value and advantage carry through
    them (verl, NeMo RL; OpenRLHF bootstraps from 0 across them), their own rewards are ignored, and what is returned
    at them is the carried advantage.
    """
    taken = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    nothing = torch.zeros_like(values)
    # The value that each token looks ahead to: that of the next token taken, or the bootstrap.
    from_here = carry_back(torch.where(taken, values, nothing), (~taken).to(values.dtype), bootstrap, lengths)
    following = _next_or(from_here, bootstrap, lengths)
    delta = torch.where(taken, rewards + gamma * following - values, nothing)
    factors = torch.where(taken, gamma * spread(lam, lengths).to(values.dtype), torch.ones_like(values))
    advantages = carry_back(delta, factors, torch.zeros_like(bootstrap), lengths).detach()
    return advantages, (advantages + values).detach()


@jaxtyped(typechecker=beartype)
def k_step_advantages(
    rewards: Float[Tensor, " tokens"],
    values: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    gamma: float,
    k: int,
    bootstrap: Float[Tensor, " rollouts"],
) -> Float[Tensor, " tokens"]:
    """The next k rewards and then the value, minus the value now; k = 1 is one-step TD.

    Near the end it takes the rewards that are left and `bootstrap`. As many passes as `k` (at most the longest).
    """
    if k < 1:
        raise ValueError(f"k is {k}, must be at least 1")
    delta = rewards + gamma * _next_or(values, bootstrap, lengths) - values
    inside = gamma * (~is_last(lengths, len(values))).to(values.dtype)
    advantages, weight = delta, torch.ones_like(values)
    for step in range(1, min(k, int(lengths.max()) if len(lengths) else 0)):
        weight = weight * ahead(inside, step - 1)
        advantages = advantages + weight * ahead(delta, step)
    return advantages.detach()


@jaxtyped(typechecker=beartype)
def discounted_returns(
    rewards: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"], *, gamma: float
) -> Float[Tensor, " tokens"]:
    """Discounted sum of the rewards from each token to its rollout's end (Monte-Carlo)."""
    nothing = rewards.new_zeros(len(lengths))
    return carry_back(rewards, torch.full_like(rewards, gamma), nothing, lengths).detach()


@jaxtyped(typechecker=beartype)
def length_adaptive_lambda(lengths: Int[Tensor, " rollouts"], *, alpha: float) -> Float[Tensor, " rollouts"]:
    """VAPO's lambda for the policy: 1 - 1 / (alpha length), alpha 0.05 (arXiv 2504.05118).

    alpha length counts as at least 1, as NeMo RL has it: else lambda would be negative for a short rollout.
    """
    return 1 - 1 / (alpha * lengths).clamp(min=1.0)


@jaxtyped(typechecker=beartype)
def place_outcome(rewards: Float[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"]) -> Float[Tensor, " tokens"]:
    """Token rewards: each rollout's outcome at its last token, 0 elsewhere.

    An abstention (NaN) is placed as 0: the caller gives that rollout no advantage and no weight in the critic's loss.
    """
    tokens = rewards.new_zeros(int(lengths.sum()))
    return tokens.index_copy(0, last_tokens(lengths), rewards.nan_to_num(nan=0.0)[lengths > 0])


def _next_or(values: Tensor, last: Tensor, lengths: Tensor) -> Tensor:
    """The next token's value, and `last` of the rollout at its last token."""
    return ahead(values, 1).index_copy(0, last_tokens(lengths), last.to(values.dtype)[lengths > 0])
