"""The gradient of one optimizer step of the policy on some rollouts of a batch. Every rank calls it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate, kept_lengths
from headrace.services.trainer.algorithms.algorithm import PolicyTokens
from headrace.services.trainer.algorithms.batching import Share
from headrace.services.trainer.algorithms.correction import Correction, correct, opsm_kept
from headrace.services.trainer.algorithms.kl import kl_per_token
from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.algorithms.losses.policy import log_ratios
from headrace.services.trainer.algorithms.losses.positive_nll import positive_nll, positive_tokens
from headrace.services.trainer.algorithms.mismatch import mismatch_sums
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.step.batch import MicroBatch, StepBatch, TrainRollout, micro_batch
from headrace.services.trainer.step.experience import Experience
from headrace.services.trainer.step.forward import score_tokens, shares_of
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.reductions import MODEL_FLOPS, Sums
from headrace.services.trainer.throughput.flops import training_flops


class PolicyUpdate:
    """The normalizers of one update, and the loss of each of its micro-batches."""

    def __init__(
        self,
        batch: StepBatch,
        experience: Experience,
        recipe: StepConfig,
        rates: Rates,
        rows: Sequence[int],
        *,
        first: bool,
        sums: Sums,
    ) -> None:
        """`first`: the weights are still those of the batch's start, so engine and trainer may be compared."""
        self._experience = experience
        self._recipe = recipe
        self._rates = rates
        self._first = first
        self._sums = sums
        index = experience.index(rows)
        lengths = experience.lengths[list(rows)]
        kept = experience.kept[index]
        self.counts = StepCounts(
            tokens=int(kept.sum()),
            rollouts=int((kept_lengths(kept, lengths) > 0).sum()),
            norm_length=recipe.table.norm_length or batch.max_tokens,
        )
        positive = positive_tokens(experience.rewards[list(rows)], lengths)
        self._positive_tokens = max(int((positive & kept).sum()), 1)
        self._lags = sorted(set(experience.lag.tolist()))

    def loss(self, scores: TokenScores, micro: MicroBatch, rows: Sequence[int], *, counts: bool) -> Tensor:
        """Returns the micro-batch's share of the update's loss; 0 (but still with a graph) without `counts`."""
        table, experience = self._recipe.table, self._experience
        trained = self._trained(scores, micro, rows, counts)
        tokens = PolicyTokens(
            logprobs=trained.logprobs,
            old=self._old(trained),
            advantages=_of(experience.advantages, trained.index, trained.logprobs),
            lengths=trained.lengths,
        )
        correction = self._correction(tokens, trained.behaviour)
        policy_loss = self._recipe.algorithm.policy_loss(tokens)
        per_token = policy_loss.per_token * correction.weights
        kl = self._kl(trained)
        if kl is not None and table.kl_in == "loss":
            per_token = per_token + self._rates.kl_coef * kl
        if self._rates.entropy_coef:
            per_token = per_token - self._rates.entropy_coef * trained.entropy
        loss = aggregate(per_token, trained.lengths, mode=table.aggregation, counts=self.counts)
        if table.positive_nll_coef:
            rewards = experience.rewards[list(rows)].to(trained.logprobs)
            likelihood = positive_nll(trained.logprobs, rewards, trained.lengths).sum() / self._positive_tokens
            loss = loss + table.positive_nll_coef * likelihood
            self._sums.add("positive_nll_loss", likelihood)
        self._sums.add("loss", loss)
        self._sums.add("tokens", float(len(trained.logprobs)))
        self._sums.add("kl", policy_loss.kl if kl is None else kl)
        self._sums.add("entropy", trained.entropy)
        self._sums.add("policy_kl", policy_loss.kl)
        self._sums.add("clip_fraction", policy_loss.clipped)
        if table.correction.on:
            self._sums.add("correction_weight", correction.weights)
            self._sums.add("rejected_share", ~correction.kept)
        if self._first:
            self._compare(trained)
        return loss

    def _trained(self, scores: TokenScores, micro: MicroBatch, rows: Sequence[int], counts: bool) -> "_Trained":
        """Returns the kept tokens only: for a loss on whole sequences the others must not exist either."""
        index = self._experience.index(rows)
        kept = self._experience.kept[index].to(scores.logprobs.device) & counts
        return _Trained(
            logprobs=scores.logprobs[kept],
            entropy=scores.entropy[kept],
            behaviour=micro.behaviour_logprobs.to(scores.logprobs.dtype)[kept],
            current=micro.current[kept],
            lengths=kept_lengths(kept, micro.lengths),
            index=index[kept.cpu()],
        )

    def _old(self, trained: "_Trained") -> Tensor:
        if self._recipe.table.anchor == "behaviour":
            return trained.behaviour
        if self._experience.old is None:
            return trained.logprobs.detach()
        return _of(self._experience.old, trained.index, trained.logprobs)

    def _correction(self, tokens: PolicyTokens, behaviour: Tensor) -> Correction:
        table = self._recipe.table.correction
        if not table.on:
            ones = torch.ones_like(tokens.old)
            return Correction(weights=ones, kept=ones.bool())
        made = correct(
            tokens.old,
            behaviour,
            tokens.lengths,
            weight=table.weight,
            cap=table.cap,
            floor=table.floor,
            outside=table.outside,
            reject=table.reject,
            reject_low=table.reject_low,
            reject_high=table.reject_high,
        )
        if not table.opsm_delta:
            return made
        near = opsm_kept(tokens.old, behaviour, tokens.advantages, tokens.lengths, delta=table.opsm_delta)
        return Correction(weights=made.weights.where(near, 0.0), kept=made.kept & near)

    def _kl(self, trained: "_Trained") -> Tensor | None:
        """KL to the reference. If unbiased, stale tokens are weighted by the ratio to the policy that sampled them."""
        if self._experience.reference is None:
            return None
        reference = _of(self._experience.reference, trained.index, trained.logprobs)
        table = self._recipe.table
        ratio = log_ratios(trained.logprobs, trained.behaviour).exp() if table.kl_unbiased else None
        return kl_per_token(trained.logprobs, reference, estimator=table.kl_estimator, ratio=ratio)

    def _compare(self, trained: "_Trained") -> None:
        """Compares trainer and engine: on tokens of the current version they must agree; on older ones they may not."""
        logprobs = trained.logprobs.detach()
        gap = (logprobs - trained.behaviour).abs()[trained.current]
        self._sums.add("logprob_gap_mean", gap)
        self._sums.add("logprob_gap_tokens", float(len(gap)))
        self._sums.most("logprob_gap_max", gap)
        self._sums.mismatch("mismatch", mismatch_sums(logprobs, trained.behaviour, trained.lengths))
        lag = self._experience.lag[trained.index].to(logprobs.device)
        for each in self._lags:
            of_lag = mismatch_sums(logprobs, trained.behaviour, trained.lengths, lag == each)
            self._sums.mismatch(f"lag{each}", of_lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """The kept tokens of a micro-batch."""

    logprobs: Tensor
    entropy: Tensor
    behaviour: Tensor
    current: Tensor
    lengths: Tensor
    index: Tensor
    """Their places in the experience's flat arrays."""


def policy_gradient(
    actors: StepModels,
    batch: StepBatch,
    experience: Experience,
    recipe: StepConfig,
    rates: Rates,
    rows: Sequence[int],
    sums: Sums,
    check: Callable[[], None],
    draw: torch.Generator,
    *,
    first: bool,
) -> bool:
    """Accumulates the policy's gradient on the rollouts `rows`; False if none of their tokens is trained.

    `check` is called before each micro-batch; `draw` chooses examples of the pretraining term.
    """
    update = PolicyUpdate(batch, experience, recipe, rates, rows, first=first, sums=sums)
    if update.counts.tokens == 0:
        return False  # Even a gradient of zeros would move the weights, by the optimizer's moments.
    policy = actors.policy
    sums.add("updates", float(policy.ranks.rank == 0))
    shares = _shares(actors, [batch.rollouts[row] for row in rows], recipe)
    examples = _drawn(recipe, draw)
    of_examples = _shares(actors, examples, recipe) if examples else []
    for number, share in enumerate(shares):
        check()
        mine = [rows[place] for place in share.rows]
        micro = micro_batch([batch.rollouts[row] for row in mine], policy.device)
        scores = score_tokens(policy, micro, chunk=recipe.logprob_chunk)
        loss = update.loss(scores, micro, mine, counts=share.counts)
        _count_work(sums, policy, [batch.rollouts[row] for row in mine], counts=share.counts)
        policy.backward(loss, last=number + 1 == len(shares) and not of_examples)
    for number, share in enumerate(of_examples):
        check()
        loss = _ptx_loss(policy, [examples[place] for place in share.rows], examples, recipe, counts=share.counts)
        sums.add("ptx_loss", loss)
        _count_work(sums, policy, [examples[place] for place in share.rows], counts=share.counts)
        policy.backward(loss, last=number + 1 == len(of_examples))
    return True


def _count_work(sums: Sums, policy: Backend, rollouts: Sequence[TrainRollout], *, counts: bool) -> None:
    """Counts the work of a share, unless it does not count and runs only for the collectives of other ranks."""
    rows = [row for rollout in rollouts for row in rollout.work] if counts else []
    sums.add(MODEL_FLOPS, float(training_flops(policy.module.compute, rows)))


def _shares(actors: StepModels, rollouts: Sequence[TrainRollout], recipe: StepConfig) -> list[Share]:
    return shares_of(
        rollouts,
        ranks=actors.policy.ranks,
        token_budget=recipe.micro_batch_tokens,
        overhead_tokens=actors.policy.overhead_tokens,
    )


def _drawn(recipe: StepConfig, draw: torch.Generator) -> list[TrainRollout]:
    """The pretraining examples of this update; every rank draws the same."""
    if not recipe.table.ptx_coef:
        return []
    rows = torch.randint(len(recipe.ptx), (recipe.table.ptx_rows,), generator=draw)
    return [recipe.ptx[row] for row in rows.tolist()]


def _ptx_loss(
    policy: Backend,
    rows: Sequence[TrainRollout],
    examples: Sequence[TrainRollout],
    recipe: StepConfig,
    *,
    counts: bool,
) -> Tensor:
    micro = micro_batch(rows, policy.device)
    scores = score_tokens(policy, micro, chunk=recipe.logprob_chunk)
    tokens = sum(len(example.trained) for example in examples)
    scale = recipe.table.ptx_coef / tokens if counts else 0.0
    return -scores.logprobs.sum() * scale


def _of(flat: Tensor, index: Tensor, like: Tensor) -> Tensor:
    return flat[index].to(like)
