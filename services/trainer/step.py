"""One optimizer step: a function of model, optimizer and batch. No I/O, no clock."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.algorithms.aggregation import StepCounts, aggregate
from services.trainer.algorithms.algorithm import Algorithm, PolicyTokens
from services.trainer.algorithms.batching import micro_batches
from services.trainer.algorithms.kl import kl_per_token
from services.trainer.algorithms.logprobs import TokenScores
from services.trainer.assembly import MicroBatch, StepBatch, micro_batch
from services.trainer.backends.backend import Backend
from services.trainer.model import Policy
from wire.errors import HeadraceError


class StepInterruptedError(HeadraceError):
    """The step was given up between two micro-batches; weights and optimizer are as before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a step is made: the values that do not change from step to step."""

    algorithm: Algorithm
    aggregation: str
    norm_length: int
    """0 = the longest completion that the batch's sampling allows."""
    kl_coef: float
    kl_estimator: str
    micro_batch_tokens: int
    logprob_chunk: int
    grad_clip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step leaves behind besides new weights."""

    metrics: dict[str, float]
    advantages: tuple[float, ...]
    """One a rollout, in the batch's order."""


def score_tokens(policy: Callable[..., Any], micro: MicroBatch, *, chunk: int) -> TokenScores:
    """Logprobs and entropy of the micro-batch's completion tokens; `policy` is a Policy or the backend that has it."""
    scores = policy(micro.token_ids, micro.rows, micro.places, micro.targets, micro.temperature, chunk)
    assert isinstance(scores, TokenScores)
    return scores


def train_step(
    backend: Backend,
    batch: StepBatch,
    recipe: Recipe,
    *,
    learning_rate: float,
    reference: Policy | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> StepOutcome:
    """Trains one batch. Every rollout runs through the model once; `reference` is needed if `kl_coef` is above 0.

    Raises StepInterruptedError when `interrupted()` turns true before the optimizer steps.
    """
    counts = StepCounts(
        tokens=sum(len(rollout.completion_ids) for rollout in batch.rollouts),
        rollouts=len(batch.rollouts),
        norm_length=recipe.norm_length or batch.max_tokens,
    )
    advantages = torch.cat(recipe.algorithm.advantages(batch.rewards))
    sums = _Sums()
    for rows in micro_batches(
        [rollout.row_tokens for rollout in batch.rollouts],
        token_budget=recipe.micro_batch_tokens,
        overhead_tokens=backend.overhead_tokens,
    ):
        if interrupted():
            backend.discard()
            raise StepInterruptedError("the step was interrupted before its weights changed")
        micro = micro_batch([batch.rollouts[row] for row in rows], backend.device)
        loss = _micro_loss(backend, micro, advantages[rows], recipe, counts, reference, sums)
        backend.backward(loss)
    grad_norm = backend.apply(learning_rate=learning_rate, grad_clip=recipe.grad_clip)
    metrics = sums.metrics(counts.tokens)
    metrics |= {"grad_norm": grad_norm, "learning_rate": learning_rate, "skipped": float(not math.isfinite(grad_norm))}
    return StepOutcome(metrics=metrics, advantages=tuple(advantages.tolist()))


def _micro_loss(
    policy: Backend,
    micro: MicroBatch,
    advantages: Tensor,
    recipe: Recipe,
    counts: StepCounts,
    reference: Policy | None,
    sums: "_Sums",
) -> Tensor:
    scores = score_tokens(policy, micro, chunk=recipe.logprob_chunk)
    tokens = PolicyTokens(
        logprobs=scores.logprobs,
        behaviour_logprobs=micro.behaviour_logprobs,
        advantages=advantages.to(scores.logprobs).repeat_interleave(micro.lengths),
        lengths=micro.lengths,
    )
    policy_loss = recipe.algorithm.policy_loss(tokens)
    per_token = policy_loss.per_token
    kl = policy_loss.kl
    if recipe.kl_coef > 0:
        assert reference is not None
        with torch.no_grad():
            frozen = score_tokens(reference, micro, chunk=recipe.logprob_chunk)
        to_reference = kl_per_token(scores.logprobs, frozen.logprobs, estimator=recipe.kl_estimator)
        per_token = per_token + recipe.kl_coef * to_reference
        kl = to_reference.detach()
    loss = aggregate(per_token, micro.lengths, mode=recipe.aggregation, counts=counts)
    gap = (scores.logprobs.detach() - micro.behaviour_logprobs).abs()[micro.current]
    sums.add("loss", loss)
    sums.add("kl", kl)
    sums.add("policy_kl", policy_loss.kl)
    sums.add("entropy", scores.entropy)
    sums.add("clip_fraction", policy_loss.clipped)
    sums.add("logprob_gap_mean", gap)
    sums.add_gap(gap)
    return loss


class _Sums:
    """Sums over the step's micro-batches, in float64, in their fixed order."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._gap_max = 0.0
        self._gap_tokens = 0

    def add(self, name: str, values: Tensor) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + float(values.detach().double().sum())

    def add_gap(self, gap: Tensor) -> None:
        if len(gap):
            self._gap_max = max(self._gap_max, float(gap.max()))
            self._gap_tokens += len(gap)

    def metrics(self, tokens: int) -> dict[str, float]:
        """Means over tokens; the loss is the step's, the gap's mean is over the tokens that count for it."""
        means = {name: total / tokens for name, total in self._totals.items()}
        means["loss"] = self._totals["loss"]
        means["logprob_gap_mean"] = self._totals["logprob_gap_mean"] / max(self._gap_tokens, 1)
        return means | {"logprob_gap_max": self._gap_max, "logprob_gap_tokens": float(self._gap_tokens)}
