"""One optimizer step of the policy on some rollouts of a batch. Every rank calls it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from services.trainer.actors import Actors, Rates, Recipe
from services.trainer.algorithms.aggregation import StepCounts, aggregate, kept_lengths
from services.trainer.algorithms.algorithm import PolicyTokens
from services.trainer.algorithms.batching import Share, shared_micro_batches
from services.trainer.algorithms.correction import Correction, correct, opsm_kept
from services.trainer.algorithms.kl import kl_per_token
from services.trainer.algorithms.logprobs import TokenScores
from services.trainer.algorithms.mismatch import mismatch_sums
from services.trainer.algorithms.policy_loss import log_ratios
from services.trainer.algorithms.positive_nll import positive_nll, positive_tokens
from services.trainer.assembly import MicroBatch, StepBatch, TrainRollout, micro_batch
from services.trainer.backends.backend import Backend
from services.trainer.experience import Experience
from services.trainer.scoring import score_tokens
from services.trainer.sums import Sums


class PolicyUpdate:
    """The normalizers of one update, and the loss of each of its micro-batches."""

    def __init__(
        self,
        batch: StepBatch,
        experience: Experience,
        recipe: Recipe,
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
        """The share of the update's loss that is this micro-batch's."""
        table, experience = self._recipe.table, self._experience
        index = experience.index(rows)
        kept = experience.kept[index].to(scores.logprobs.device) & counts
        old = self._old(scores, micro, index)
        tokens = PolicyTokens(
            logprobs=scores.logprobs,
            old=old,
            advantages=_of(experience.advantages, index, scores.logprobs),
            lengths=micro.lengths,
        )
        correction = self._correction(tokens, micro)
        policy_loss = self._recipe.algorithm.policy_loss(tokens)
        per_token = policy_loss.per_token * correction.weights
        kl = self._kl(scores, index, tokens)
        if kl is not None and table.kl_in == "loss":
            per_token = per_token + self._rates.kl_coef * kl
        if self._rates.entropy_coef:
            per_token = per_token - self._rates.entropy_coef * scores.entropy
        loss = aggregate(per_token, micro.lengths, mode=table.aggregation, counts=self.counts, kept=kept)
        if table.positive_nll_coef:
            nll = positive_nll(scores.logprobs, experience.rewards[list(rows)].to(old), micro.lengths)
            likelihood = nll.where(kept, 0.0).sum() / self._positive_tokens
            loss = loss + table.positive_nll_coef * likelihood
            self._sums.add("positive_nll_loss", likelihood)
        self._measure(loss, scores, policy_loss.kl if kl is None else kl, kept)
        self._sums.add("policy_kl", policy_loss.kl[kept])
        self._sums.add("clip_fraction", policy_loss.clipped[kept])
        if table.correction.on:
            self._sums.add("correction_weight", correction.weights[kept])
            self._sums.add("rejected_share", ~correction.kept[kept])
        if self._first:
            self._compare(scores, micro, index, kept)
        return loss

    def _old(self, scores: TokenScores, micro: MicroBatch, index: Tensor) -> Tensor:
        if self._recipe.table.anchor == "behaviour":
            return micro.behaviour_logprobs.to(scores.logprobs.dtype)
        if self._experience.old is None:
            return scores.logprobs.detach()
        return _of(self._experience.old, index, scores.logprobs)

    def _correction(self, tokens: PolicyTokens, micro: MicroBatch) -> Correction:
        table = self._recipe.table.correction
        behaviour = micro.behaviour_logprobs.to(tokens.old)
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

    def _kl(self, scores: TokenScores, index: Tensor, tokens: PolicyTokens) -> Tensor | None:
        if self._experience.reference is None:
            return None
        reference = _of(self._experience.reference, index, scores.logprobs)
        table = self._recipe.table
        ratio = log_ratios(scores.logprobs, tokens.old).exp() if table.kl_unbiased else None
        return kl_per_token(scores.logprobs, reference, estimator=table.kl_estimator, ratio=ratio)

    def _measure(self, loss: Tensor, scores: TokenScores, kl: Tensor, kept: Tensor) -> None:
        self._sums.add("loss", loss)
        self._sums.add("tokens", kept)
        self._sums.add("kl", kl[kept])
        self._sums.add("entropy", scores.entropy[kept])

    def _compare(self, scores: TokenScores, micro: MicroBatch, index: Tensor, kept: Tensor) -> None:
        """Trainer and engine: on tokens of the version in training they must agree; on older ones it is staleness."""
        behaviour = micro.behaviour_logprobs.to(scores.logprobs.dtype)
        gap = (scores.logprobs.detach() - behaviour).abs()[micro.current & kept]
        self._sums.add("logprob_gap_mean", gap)
        self._sums.add("logprob_gap_tokens", float(len(gap)))
        self._sums.most("logprob_gap_max", gap)
        lag = self._experience.lag[index].to(kept.device)
        for kind, counted in (("mismatch", kept), *((f"lag{each}", kept & (lag == each)) for each in self._lags)):
            self._sums.mismatch(kind, mismatch_sums(scores.logprobs.detach(), behaviour, micro.lengths, counted))


def update_policy(
    actors: Actors,
    batch: StepBatch,
    experience: Experience,
    recipe: Recipe,
    rates: Rates,
    rows: Sequence[int],
    sums: Sums,
    check: Callable[[], None],
    *,
    first: bool,
) -> float:
    """Trains the rollouts `rows`; returns the gradient's norm, 0 if none of their tokens is trained.

    `check` is called before each micro-batch.
    """
    update = PolicyUpdate(batch, experience, recipe, rates, rows, first=first, sums=sums)
    if update.counts.tokens == 0:
        return 0.0  # Also a gradient of zeros would move the weights, by the optimizer's moments.
    policy = actors.policy
    sums.add("updates", float(policy.ranks.rank == 0))
    shares = _shares(actors, [batch.rollouts[row] for row in rows], recipe)
    examples = _drawn(recipe)
    of_examples = _shares(actors, examples, recipe) if examples else []
    for number, share in enumerate(shares):
        check()
        mine = [rows[place] for place in share.rows]
        micro = micro_batch([batch.rollouts[row] for row in mine], policy.device)
        scores = score_tokens(policy, micro, chunk=recipe.logprob_chunk)
        loss = update.loss(scores, micro, mine, counts=share.counts)
        # A dummy's loss is 0, but its graph must reach every weight.
        loss = loss if share.counts else loss + 0.0 * scores.logprobs.sum()
        policy.backward(loss, last=number + 1 == len(shares) and not of_examples)
    for number, share in enumerate(of_examples):
        check()
        loss = _ptx_loss(policy, [examples[place] for place in share.rows], examples, recipe, counts=share.counts)
        sums.add("ptx_loss", loss)
        policy.backward(loss, last=number + 1 == len(of_examples))
    return policy.apply(learning_rate=rates.policy, grad_clip=recipe.grad_clip)


def _shares(actors: Actors, rollouts: Sequence[TrainRollout], recipe: Recipe) -> list[Share]:
    ranks = actors.policy.ranks
    return shared_micro_batches(
        [rollout.row_tokens for rollout in rollouts],
        ranks=ranks.size,
        token_budget=recipe.micro_batch_tokens,
        overhead_tokens=actors.policy.overhead_tokens,
    )[ranks.rank]


def _drawn(recipe: Recipe) -> list[TrainRollout]:
    """The pretraining examples of this update; every rank draws the same, from the step's seed."""
    if not recipe.table.ptx_coef:
        return []
    rows = torch.randint(len(recipe.ptx), (recipe.table.ptx_rows,))
    return [recipe.ptx[row] for row in rows.tolist()]


def _ptx_loss(
    policy: Backend,
    rows: Sequence[TrainRollout],
    examples: Sequence[TrainRollout],
    recipe: Recipe,
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
