"""The gradient of one optimizer step of the critic on some rollouts of a batch. Every rank calls it."""

from collections.abc import Sequence

from torch import Tensor

from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate, kept_lengths
from headrace.services.trainer.algorithms.losses.critic import quantile_loss, quantile_mean, value_loss
from headrace.services.trainer.step.batch import micro_batch
from headrace.services.trainer.step.experience import Experience
from headrace.services.trainer.step.forward import shares_of
from headrace.services.trainer.step.inputs import StepConfig, StepContext

_KAPPA = 1.0
"""Error at which the quantile loss turns from squares to absolute values, in units of the return (arXiv 1710.10044)."""


def critic_gradient(context: StepContext, experience: Experience, rows: Sequence[int]) -> bool:
    """Accumulates the critic's gradient on the returns of the rollouts `rows`; False if none of their tokens counts.

    All scored tokens within the bound on staleness train it, including those that the policy is not trained on.
    """
    critic, sums = context.models.critic, context.sums
    assert critic is not None and experience.values is not None and experience.returns is not None
    scored = experience.rewards.isfinite().repeat_interleave(experience.lengths) & experience.fresh
    places = experience.places(rows)
    lengths = experience.lengths[list(rows)]
    counts = StepCounts(
        tokens=int(scored[places].sum()),
        rollouts=int((kept_lengths(scored[places], lengths) > 0).sum()),
        norm_length=1,
    )
    if counts.tokens == 0:
        return False
    sums.add("value_updates", float(critic.ranks.rank == 0))
    rollouts = [context.batch.rollouts[row] for row in rows]
    shares = shares_of(rollouts, critic, token_budget=context.config.micro_batch_tokens)
    for number, share in enumerate(shares):
        context.check()
        mine = [rows[place] for place in share.rows]
        micro = micro_batch([rollouts[place] for place in share.rows], critic.device)
        values: Tensor = critic(micro.token_ids, micro.rows, micro.places)
        places = experience.places(mine)
        per_token = _per_token(values, experience.values[places], experience.returns[places], context.config)
        kept = scored[places].to(values.device) & share.counts
        loss = aggregate(per_token, micro.lengths, mode="token-mean", counts=counts, kept=kept)
        loss = loss if share.counts else loss + 0.0 * values.sum()
        sums.add("value_loss", loss)
        critic.backward(loss, last=number + 1 == len(shares))
    return True


def _per_token(values: Tensor, old: Tensor, returns: Tensor, config: StepConfig) -> Tensor:
    old, returns, table = old.to(values), returns.to(values), config.critic
    if values.shape[1] > 1:
        return quantile_loss(values, returns, kappa=table.huber_bound or _KAPPA)
    means = quantile_mean(values), quantile_mean(old)
    return value_loss(*means, returns, clip=table.value_clip, bound=table.huber_bound)
