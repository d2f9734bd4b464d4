"""One training step: a function of models, optimizers and batch. No I/O, no clock of its own. Every rank calls it.

A batch gives one optimizer step of the policy (and of the critic, where there is one), or `epochs` times `minibatches`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.services.trainer.algorithms.losses.critic import explained_variance, quantile_mean
from headrace.services.trainer.step.batch import StepBatch
from headrace.services.trainer.step.experience import Experience, gather_experience
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepContext, StepModels
from headrace.services.trainer.step.policy_update import policy_gradient
from headrace.services.trainer.step.reductions import Sums
from headrace.services.trainer.step.trust_region import trust_region_step
from headrace.services.trainer.step.value_update import critic_gradient
from headrace.services.trainer.timing.phases import Timed, untimed
from headrace.wire.errors import HeadraceError


class StepInterruptedError(HeadraceError):
    """The step was given up between two micro-batches; weights and optimizer are as before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The results of a step besides new weights."""

    metrics: dict[str, float]
    advantages: tuple[float, ...]
    """One a rollout, in the batch's order: the mean over its tokens."""
    token_advantages: tuple[NDArray[np.float32], ...]
    """The same for each trained token."""
    kept_counts: tuple[NDArray[np.int32] | None, ...] = ()
    """One a rollout: how many ids each token was drawn from; None = the whole vocabulary."""
    shaping: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """One a rollout: what was added to the scores, by component."""
    peaks: dict[str, float] = field(default_factory=dict)
    """Peak usage over the ranks; unlike `metrics` not a function of batch and weights."""


def train_step(
    models: StepModels,
    batch: StepBatch,
    config: StepConfig,
    rates: Rates,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    phases: Timed = untimed,
    peaks: Callable[[], Mapping[str, float]] = dict,
) -> StepOutcome:
    """Trains one batch; its phases are timed by `phases`.

    `peaks`: peak usage of this rank, under the same names on every rank; called once, at the end. The outcome has the
    largest of all ranks, unless that is 0.

    Raises StepInterruptedError when `interrupted()` turns true (on any rank) before the first optimizer step.
    """
    ranks = models.policy.ranks
    norms: list[float] = []
    critic_norms: list[float] = []

    def check() -> None:
        if not norms and not critic_norms and ranks.agree(interrupted()):
            raise _given_up(models)

    draw = torch.Generator().manual_seed(rates.seed)
    context = StepContext(models=models, batch=batch, config=config, rates=rates, draw=draw, check=check, phases=phases)
    check()
    experience = gather_experience(context)
    if not rates.policy_frozen:
        for rows in _updates(batch, config.table.epochs, config.table.minibatches, draw):
            norm = 0.0
            with phases("policy_update"):
                if policy_gradient(context, experience, rows, first=not norms):
                    with phases("optimizer"):
                        norm = _apply(context, experience, rows)
            norms.append(norm)
    if models.critic is not None:
        for rows in _updates(batch, config.critic.epochs, config.table.minibatches, draw):
            norm = 0.0
            with phases("critic_update"):
                if critic_gradient(context, experience, rows):
                    with phases("optimizer"):
                        norm = models.critic.apply(learning_rate=rates.critic, grad_clip=config.critic.grad_clip)
            critic_norms.append(norm)
    usage = peaks()
    for name, value in usage.items():
        context.sums.most(name, value)
    metrics = _metrics(experience, rates, context.sums.over(ranks), norms, critic_norms)
    found = {name: metrics.pop(name) for name in usage}
    parts = torch.split(experience.advantages, experience.lengths.tolist())
    return StepOutcome(
        metrics=metrics,
        peaks={name: value for name, value in found.items() if value},
        advantages=tuple(float(part.mean()) if len(part) else 0.0 for part in parts),
        token_advantages=tuple(part.float().numpy() for part in parts),
        kept_counts=tuple(None if one.kept is None else one.kept.counts for one in batch.rollouts),
        shaping={name: tuple(added.tolist()) for name, added in experience.shaping.items()},
    )


def _apply(context: StepContext, experience: Experience, rows: Sequence[int]) -> float:
    """Moves the policy's weights by the gradient; returns its norm."""
    if context.config.table.policy_loss == "trpo":
        return trust_region_step(context, experience, rows)
    return context.models.policy.apply(learning_rate=context.rates.policy, grad_clip=context.config.grad_clip)


def _given_up(models: StepModels) -> StepInterruptedError:
    """Discards the gradients gathered so far."""
    for backend in (models.policy, models.critic):
        if backend is not None:
            backend.discard()
    return StepInterruptedError("the step was interrupted before its weights changed")


def _metrics(
    experience: Experience, rates: Rates, sums: Sums, norms: Sequence[float], critic_norms: Sequence[float]
) -> dict[str, float]:
    # Reported by every step, even by one that trained no token of the policy.
    metrics = {"loss": 0.0} | sums.metrics()
    finite = all(math.isfinite(norm) for norm in (*norms, *critic_norms))
    trained = experience.advantages[experience.kept]
    metrics |= {
        "grad_norm": _largest(norms),
        "learning_rate": rates.policy,
        "skipped": float(not finite or not experience.fresh.any()),
        "updates": float(len(norms)),
        "kept_share": float(experience.kept.double().mean()) if len(experience.kept) else 0.0,
        "trained_tokens": 0.0 if rates.policy_frozen else float(experience.kept.sum()),
        **({"advantage_min": float(trained.min()), "advantage_max": float(trained.max())} if len(trained) else {}),
    }
    if critic_norms:
        assert experience.values is not None and experience.returns is not None
        explained = explained_variance(quantile_mean(experience.values), experience.returns)
        metrics |= {
            "critic_grad_norm": _largest(critic_norms),
            "critic_learning_rate": rates.critic,
            "explained_variance": float(explained),
        }
    return metrics


def _updates(batch: StepBatch, epochs: int, minibatches: int, draw: torch.Generator) -> Iterator[list[int]]:
    """The rollouts of each optimizer step: whole groups, in a new order each epoch if they are split."""
    sizes = [len(rewards) for rewards in batch.rewards]
    starts = [sum(sizes[:group]) for group in range(len(sizes))]
    for _ in range(epochs):
        split = min(minibatches, len(sizes))
        order = torch.randperm(len(sizes), generator=draw) if split > 1 else torch.arange(len(sizes))
        for groups in order.tensor_split(split):
            yield [starts[group] + member for group in groups.tolist() for member in range(sizes[group])]


def _largest(norms: Sequence[float]) -> float:
    """NaN if any is: `max` would hide it."""
    return float(torch.tensor([0.0, *norms], dtype=torch.float64).max())
