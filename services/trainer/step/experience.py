"""What a step computes from its batch before its first update: logprobs, values, masks, and advantages.

Flat arrays over the batch's trained tokens, rollout after rollout, on the CPU; every rank has all of them.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headrace.services.trainer.algorithms.advantages.estimates import monte_carlo_returns
from headrace.services.trainer.algorithms.advantages.shaping import overlong_penalty
from headrace.services.trainer.algorithms.algorithm import Signals
from headrace.services.trainer.algorithms.kl import kl_per_token
from headrace.services.trainer.algorithms.losses.critic import quantile_mean, quantile_spread, spread_weights
from headrace.services.trainer.durability.staleness import UNBOUNDED
from headrace.services.trainer.step.batch import MicroBatch, StepBatch, step_scores
from headrace.services.trainer.step.forward import score_tokens, starts_of, sweep
from headrace.services.trainer.step.inputs import StepConfig, StepModels
from headrace.services.trainer.timing.phases import Timed, untimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """The flat arrays of one batch."""

    starts: tuple[int, ...]
    """Where each rollout's tokens begin; the last is their end."""
    lengths: Int[Tensor, " rollouts"]
    kept: Bool[Tensor, " tokens"]
    """Whether the token is trained; the others count for rewards and advantages only."""
    fresh: Bool[Tensor, " tokens"]
    """Whether the token is within the bound on staleness; the others are in no loss, not even the critic's."""
    lag: Int[Tensor, " tokens"]
    """Versions between sampling and training."""
    rewards: Float[Tensor, " rollouts"]
    """Shaped rewards of whole rollouts, without their token scores: those that are trained on."""
    advantages: Float[Tensor, " tokens"]
    old: Float[Tensor, " tokens"] | None
    """The policy's logprobs at batch time, if more than one update needs them."""
    reference: Float[Tensor, " tokens"] | None
    values: Float[Tensor, "tokens outputs"] | None
    returns: Float[Tensor, " tokens"] | None

    def index(self, rows: Sequence[int]) -> Int[Tensor, " some"]:
        """Places of the tokens of some rollouts in the flat arrays."""
        return torch.cat([torch.arange(self.starts[row], self.starts[row + 1]) for row in rows])


def gather_experience(
    actors: StepModels,
    batch: StepBatch,
    recipe: StepConfig,
    *,
    kl_coef: float,
    pretraining: bool,
    phases: Timed = untimed,
) -> Experience:
    """Runs the forward passes that the algorithm needs, and estimates advantages. Every rank calls it.

    `pretraining`: the critic learns Monte-Carlo returns.
    """
    old = reference = values = None
    if recipe.sweeps_old:
        with phases("old_logprobs"):
            old = _sweep(actors, batch, recipe, _of_policy(actors.policy, recipe))
    if actors.reference is not None:
        with phases("reference"):
            reference = _sweep(actors, batch, recipe, _of_policy(actors.reference, recipe))
    if actors.critic is not None:
        critic = actors.critic
        with phases("values"):
            values = _sweep(actors, batch, recipe, lambda micro: critic(micro.token_ids, micro.rows, micro.places))
    with phases("advantages"):
        return _estimated(batch, recipe, old, reference, values, kl_coef=kl_coef, pretraining=pretraining)


def _estimated(
    batch: StepBatch,
    recipe: StepConfig,
    old: Tensor | None,
    reference: Tensor | None,
    values: Tensor | None,
    *,
    kl_coef: float,
    pretraining: bool,
) -> Experience:
    """Computes rewards, advantages and masks from the results of the passes."""
    table = recipe.table
    lengths = torch.tensor([len(rollout.trained) for rollout in batch.rollouts])
    lag = torch.from_numpy(_flat(batch, lambda rollout: rollout.lag, np.int32)).long()
    fresh = lag <= recipe.most_lag if recipe.most_lag != UNBOUNDED else torch.ones_like(lag, dtype=torch.bool)
    signals = Signals(
        rewards=_shaped(batch, recipe),
        group_sizes=tuple(len(rewards) for rewards in batch.rewards),
        baselines=_shaped_baselines(batch, recipe),
        lengths=lengths,
        truncated=torch.tensor([rollout.truncated for rollout in batch.rollouts]),
        token_scores=_token_scores(batch),
        penalties=_penalties(batch, recipe, old, reference, kl_coef, fresh),
        values=None if values is None else quantile_mean(values),
        old=old,
        reference=reference,
    )
    estimate = recipe.algorithm.estimate(signals)
    advantages, returns = estimate.advantages, estimate.returns
    if values is not None and recipe.critic.spread_weight:
        advantages = advantages * spread_weights(quantile_spread(values), strength=recipe.critic.spread_weight)
    if pretraining:
        returns = monte_carlo_returns(signals, gamma=table.gamma)
    return Experience(
        starts=tuple(starts_of(batch.rollouts)),
        lengths=lengths,
        kept=_kept(recipe, signals, lag) & fresh,
        fresh=fresh,
        lag=lag,
        rewards=signals.rewards,
        advantages=advantages,
        old=old,
        reference=reference,
        values=values,
        returns=returns,
    )


def _sweep(actors: StepModels, batch: StepBatch, recipe: StepConfig, forward: Callable[[MicroBatch], Tensor]) -> Tensor:
    return sweep(
        forward,
        batch.rollouts,
        ranks=actors.policy.ranks,
        device=actors.policy.device,
        token_budget=recipe.micro_batch_tokens,
        overhead_tokens=actors.policy.overhead_tokens,
    )


def _of_policy(policy: Callable[..., object], recipe: StepConfig) -> Callable[[MicroBatch], Tensor]:
    return lambda micro: score_tokens(policy, micro, chunk=recipe.logprob_chunk).logprobs


def _shaped(batch: StepBatch, recipe: StepConfig) -> Tensor:
    """Rewards less the soft punishment of overlong rollouts, which counts all tokens that the policy sampled."""
    sampled = torch.tensor([len(rollout.trained) for rollout in batch.rollouts])
    return torch.cat(batch.rewards) + _overlong(batch, recipe, sampled)


def _shaped_baselines(batch: StepBatch, recipe: StepConfig) -> Tensor | None:
    """Applies the same to the greedy rollouts: else every long prompt would look worse than its baseline."""
    if batch.baselines is None or batch.baseline_lengths is None:
        return None
    return batch.baselines + _overlong(batch, recipe, batch.baseline_lengths)


def _overlong(batch: StepBatch, recipe: StepConfig, lengths: Tensor) -> Tensor:
    table = recipe.table
    if not table.overlong_buffer:
        return torch.zeros(len(lengths), dtype=torch.float64)
    buffer = min(table.overlong_buffer, batch.max_tokens)
    penalty = overlong_penalty(lengths, max_tokens=batch.max_tokens, buffer=buffer, factor=table.overlong_factor)
    return penalty.double()


def _penalties(
    batch: StepBatch, recipe: StepConfig, old: Tensor | None, reference: Tensor | None, kl_coef: float, fresh: Tensor
) -> Tensor | None:
    """The KL of each token as it is taken off its reward: between the policy that ratios are taken to and reference."""
    if recipe.table.kl_in != "reward" or reference is None or kl_coef == 0:
        return None
    sampled = old if old is not None else _behaviour(batch)
    return (kl_coef * kl_per_token(sampled, reference, estimator=recipe.table.kl_estimator)).where(fresh, 0.0)


def _token_scores(batch: StepBatch) -> Tensor | None:
    if all(rollout.token_scores is None for rollout in batch.rollouts):
        return None
    ends = itertools.accumulate(len(rewards) for rewards in batch.rewards)
    groups = [batch.rollouts[end - len(rewards) : end] for end, rewards in zip(ends, batch.rewards, strict=True)]
    return torch.from_numpy(np.concatenate([own for group in groups for own in step_scores(group)])).double()


def _behaviour(batch: StepBatch) -> Tensor:
    return torch.from_numpy(_flat(batch, lambda rollout: rollout.behaviour_logprobs, np.float32)).double()


def _flat(batch: StepBatch, of: Callable[..., object], dtype: type) -> np.ndarray:
    parts = []
    for rollout in batch.rollouts:
        found = of(rollout)
        values = np.zeros(len(rollout.completion_ids), dtype) if found is None else np.asarray(found)
        parts.append(values[rollout.trained])
    return np.concatenate(parts)


def _kept(recipe: StepConfig, signals: Signals, lag: Tensor) -> Tensor:
    """Which tokens are trained: scored, not filtered as truncated, and young enough."""
    rollouts = signals.rewards.isfinite()
    if recipe.table.mask_truncated:
        rollouts = rollouts & ~signals.truncated
    kept = rollouts.repeat_interleave(signals.lengths)
    if recipe.table.max_token_age >= 0:
        kept = kept & (lag <= recipe.table.max_token_age)
    return kept
