"""What a step computes from its batch before its first update: logprobs, values, masks, and advantages.

Flat arrays over the batch's trained tokens, rollout after rollout, on the CPU; every rank has all of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headrace.services.trainer.algorithms.advantages.returns import monte_carlo_returns
from headrace.services.trainer.algorithms.advantages.shaping import overlong_penalty
from headrace.services.trainer.algorithms.algorithm import Signals
from headrace.services.trainer.algorithms.kl import kl_per_token
from headrace.services.trainer.algorithms.losses.critic import quantile_mean, quantile_spread, spread_weights
from headrace.services.trainer.algorithms.segments import segment_sum
from headrace.services.trainer.durability.staleness import UNBOUNDED
from headrace.services.trainer.step.batch import MicroBatch, StepBatch, step_scores
from headrace.services.trainer.step.forward import score_tokens, starts_of, sweep
from headrace.services.trainer.step.inputs import StepConfig, StepContext
from headrace.wire.telemetry.reward_components import ADDED, KL, OVERLONG, Component


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
    shaping: Mapping[str, Float[Tensor, " rollouts"]]
    """What was added to the scores of whole rollouts, by component."""
    advantages: Float[Tensor, " tokens"]
    old: Float[Tensor, " tokens"] | None
    """The policy's logprobs at batch time, if more than one update needs them."""
    reference: Float[Tensor, " tokens"] | None
    values: Float[Tensor, "tokens outputs"] | None
    returns: Float[Tensor, " tokens"] | None

    def places(self, rows: Sequence[int]) -> Int[Tensor, " some"]:
        """Places of the tokens of some rollouts in the flat arrays."""
        return torch.cat([torch.arange(self.starts[row], self.starts[row + 1]) for row in rows])


def gather_experience(context: StepContext) -> Experience:
    """Runs the forward passes that the algorithm needs, and estimates advantages. Every rank calls it."""
    models, phases = context.models, context.phases
    old = compared = reference = values = None
    if context.config.sweeps_old:
        with phases("old_logprobs"):
            old, compared = _sweep(context, _of_policy(models.policy, context.config)).unbind(1)
    if models.reference is not None:
        with phases("reference"):
            reference = _sweep(context, _of_policy(models.reference, context.config))[:, 1]
    if models.critic is not None:
        critic = models.critic
        with phases("values"):
            values = _sweep(context, lambda micro: critic(micro.token_ids, micro.rows, micro.places))
    with phases("advantages"):
        return replace(_estimated(context, compared, reference, values), old=old)


def _estimated(context: StepContext, old: Tensor | None, reference: Tensor | None, values: Tensor | None) -> Experience:
    """Computes rewards, advantages and masks from the results of the passes.

    `old` and `reference` are on the support of the KL: `algorithm.kl_support`.
    """
    batch, config = context.batch, context.config
    lengths = torch.tensor([len(rollout.trained) for rollout in batch.rollouts])
    lag = torch.from_numpy(_flat(batch, lambda rollout: rollout.lag, np.int32)).long()
    fresh = lag <= config.most_lag if config.most_lag != UNBOUNDED else torch.ones_like(lag, dtype=torch.bool)
    # The soft punishment of overlong rollouts counts all tokens that the policy sampled.
    overlong, penalties = _overlong(batch, config, lengths), _penalties(context, old, reference, fresh)
    rewards = torch.cat(batch.rewards) + overlong
    added = {OVERLONG: overlong} if config.table.overlong_buffer else {}
    truncated = torch.tensor([rollout.truncated for rollout in batch.rollouts])
    kept = _kept(config, rewards.isfinite(), truncated, lengths, lag) & fresh
    signals = Signals(
        rewards=rewards,
        group_sizes=tuple(len(rewards) for rewards in batch.rewards),
        baselines=_shaped_baselines(batch, config),
        lengths=lengths,
        truncated=truncated,
        token_scores=_token_scores(batch),
        penalties=penalties,
        values=None if values is None else quantile_mean(values),
        old=old,
        reference=reference,
        trained=kept,
        components=_of_components(batch, added, lambda one: one.value),
        component_weights=_of_components(batch, added, lambda one: one.weight),
        columns=batch.columns,
    )
    estimate = config.algorithm.estimate(signals)
    advantages, returns = estimate.advantages, estimate.returns
    if values is not None and config.critic.spread_weight:
        advantages = advantages * spread_weights(quantile_spread(values), strength=config.critic.spread_weight)
    if context.rates.pretraining:
        returns = monte_carlo_returns(signals, config.table)
    return Experience(
        starts=tuple(starts_of(batch.rollouts)),
        lengths=lengths,
        kept=kept,
        fresh=fresh,
        lag=lag,
        rewards=rewards,
        shaping=added | ({} if penalties is None else {KL: -segment_sum(penalties, lengths)}),
        advantages=advantages,
        old=old,
        reference=reference,
        values=values,
        returns=returns,
    )


def _sweep(context: StepContext, forward: Callable[[MicroBatch], Tensor]) -> Tensor:
    budget = context.config.micro_batch_tokens
    return sweep(forward, context.batch.rollouts, context.models.policy, token_budget=budget)


def _of_policy(policy: Callable[..., object], config: StepConfig) -> Callable[[MicroBatch], Tensor]:
    """Logprobs as they were sampled, and those that a KL to the reference compares: [tokens, 2]."""

    def logprobs(micro: MicroBatch) -> Tensor:
        scores = score_tokens(policy, micro, chunk=config.logprob_chunk)
        compared = scores.logprobs if config.table.kl_support == "kept" else scores.full
        return torch.stack([scores.logprobs, compared], 1)

    return logprobs


def _shaped_baselines(batch: StepBatch, config: StepConfig) -> Tensor | None:
    """The greedy rollouts' rewards, punished alike: else every long prompt would look worse than its baseline."""
    if batch.baselines is None or batch.baseline_lengths is None:
        return None
    return batch.baselines + _overlong(batch, config, batch.baseline_lengths)


def _overlong(batch: StepBatch, config: StepConfig, lengths: Tensor) -> Tensor:
    table = config.table
    if not table.overlong_buffer:
        return torch.zeros(len(lengths), dtype=torch.float64)
    buffer = min(table.overlong_buffer, batch.max_tokens)
    penalty = overlong_penalty(lengths, max_tokens=batch.max_tokens, buffer=buffer, factor=table.overlong_factor)
    return penalty.double()


def _penalties(context: StepContext, old: Tensor | None, reference: Tensor | None, fresh: Tensor) -> Tensor | None:
    """The KL of each token as it is taken off its reward: between the policy that ratios are taken to and reference."""
    table, coef = context.config.table, context.rates.kl_coef
    if table.kl_in != "reward" or reference is None or coef == 0:
        return None
    if old is None:
        flat = _flat(context.batch, lambda rollout: rollout.behaviour_logprobs, np.float32)
        old = torch.from_numpy(flat).double()
    return (coef * kl_per_token(old, reference, estimator=table.kl_estimator)).where(fresh, 0.0)


def _of_components(
    batch: StepBatch, added: Mapping[str, Tensor], of: Callable[[Component], float | None]
) -> dict[str, Tensor]:
    """[rollouts] each: a number of every component that counts, of the rewards and of what is `added` to them."""
    rows = [
        {**row, **{name: Component(float(values[place]), 1.0) for name, values in added.items()}}
        for place, row in enumerate(batch.components)
    ]
    found = {}
    for name in sorted({name for row in rows for name, one in row.items() if one.weight}):
        # A score without token scores, or a remainder, has 0 of them: a scorer that is missing abstained.
        missing = Component(0.0 if name in ADDED else None, 1.0)
        numbers = [of(row.get(name, missing)) for row in rows]
        found[name] = torch.tensor([math.nan if one is None else one for one in numbers], dtype=torch.float64)
    return found


def _token_scores(batch: StepBatch) -> Tensor | None:
    if all(rollout.token_scores is None for rollout in batch.rollouts):
        return None
    return torch.from_numpy(np.concatenate(step_scores(batch.rollouts))).double()


def _flat(batch: StepBatch, of: Callable[..., object], dtype: type) -> np.ndarray:
    parts = []
    for rollout in batch.rollouts:
        found = of(rollout)
        values = np.zeros(len(rollout.completion_ids), dtype) if found is None else np.asarray(found)
        parts.append(values[rollout.trained])
    return np.concatenate(parts)


def _kept(config: StepConfig, scored: Tensor, truncated: Tensor, lengths: Tensor, lag: Tensor) -> Tensor:
    """Which tokens are trained: scored, not filtered as truncated, and young enough."""
    kept = (scored & ~truncated if config.table.mask_truncated else scored).repeat_interleave(lengths)
    if config.table.max_token_age >= 0:
        kept = kept & (lag <= config.table.max_token_age)
    return kept
