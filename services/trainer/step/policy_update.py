"""The gradient of one optimizer step of the policy on some rollouts of a batch. Every rank calls it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate, kept_lengths
from headrace.services.trainer.algorithms.algorithm import PolicyTokens
from headrace.services.trainer.algorithms.correction import correct
from headrace.services.trainer.algorithms.kl import k3_is_cut, kl_per_token
from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.algorithms.losses.policy import log_ratios
from headrace.services.trainer.algorithms.losses.positive_nll import positive_nll, positive_tokens
from headrace.services.trainer.algorithms.mismatch import mismatch_sums
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.step.batch import MicroBatch, TrainRollout, micro_batch
from headrace.services.trainer.step.experience import Experience
from headrace.services.trainer.step.forward import score_tokens, shares_of
from headrace.services.trainer.step.inputs import StepConfig, StepContext
from headrace.services.trainer.step.reductions import MODEL_FLOPS, Sums
from headrace.services.trainer.throughput.flops import training_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTokens(PolicyTokens):
    """The tokens of a micro-batch that are trained: for a loss on whole sequences the others must not exist."""

    entropy: Tensor
    full: Tensor
    """The policy's logprobs over the whole vocabulary."""
    behaviour: Tensor
    """The engine's logprobs."""
    current: Tensor
    places: Tensor
    """In the experience's flat arrays, on the CPU."""


class PolicyUpdate:
    """The normalizers of one update, and the loss of each of its micro-batches."""

    def __init__(self, context: StepContext, experience: Experience, rows: Sequence[int], *, first: bool) -> None:
        """`first`: the weights are still those of the batch's start, so engine and trainer may be compared."""
        self._config, self._rates, self._sums = context.config, context.rates, context.sums
        self._experience = experience
        self._first = first
        places = experience.places(rows)
        lengths = experience.lengths[list(rows)]
        kept = experience.kept[places]
        self.counts = StepCounts(
            tokens=int(kept.sum()),
            rollouts=int((kept_lengths(kept, lengths) > 0).sum()),
            norm_length=context.config.table.norm_length or context.batch.max_tokens,
        )
        positive = positive_tokens(experience.rewards[list(rows)], lengths)
        self._positive_tokens = max(int((positive & kept).sum()), 1)
        self._lags = sorted(set(experience.lag.tolist()))

    def loss(self, scores: TokenScores, micro: MicroBatch, rows: Sequence[int], *, counts: bool) -> Tensor:
        """Returns the micro-batch's share of the update's loss; 0 (but still with a graph) without `counts`."""
        table, sums = self._config.table, self._sums
        tokens = self._kept(scores, micro, rows, counts)
        policy_loss = self._config.algorithm.policy_loss(tokens)
        per_token = policy_loss.per_token
        if table.correction.on:
            correction = correct(tokens, tokens.behaviour, table.correction)
            per_token = per_token * correction.weights
            sums.add("correction_weight", correction.weights)
            sums.add("rejected_share", ~correction.kept)
        kl = self._kl(tokens)
        if kl is not None and table.kl_in == "loss":
            per_token = per_token + self._rates.kl_coef * kl
        if self._rates.entropy_coef:
            per_token = per_token - self._rates.entropy_coef * tokens.entropy
        loss = aggregate(per_token, tokens.lengths, mode=table.aggregation, counts=self.counts)
        if table.positive_nll_coef:
            rewards = self._experience.rewards[list(rows)].to(tokens.logprobs)
            likelihood = positive_nll(tokens.full, rewards, tokens.lengths).sum() / self._positive_tokens
            loss = loss + table.positive_nll_coef * likelihood
            sums.add("positive_nll_loss", likelihood)
        sums.add("loss", loss)
        sums.add("tokens", float(len(tokens.logprobs)))
        sums.add("kl", policy_loss.kl if kl is None else kl)
        sums.add("entropy", tokens.entropy)
        sums.add("policy_kl", policy_loss.kl)
        sums.add("clip_fraction", policy_loss.clipped)
        if self._first:
            self._compare(tokens)
        return loss

    def _kept(self, scores: TokenScores, micro: MicroBatch, rows: Sequence[int], counts: bool) -> KeptTokens:
        experience = self._experience
        places = experience.places(rows)
        kept = experience.kept[places] & counts
        places, kept = places[kept], kept.to(scores.logprobs.device)
        logprobs = scores.logprobs[kept]
        behaviour = micro.behaviour_logprobs.to(logprobs.dtype)[kept]
        old = logprobs.detach() if experience.old is None else experience.old[places].to(logprobs)
        return KeptTokens(
            logprobs=logprobs,
            old=behaviour if self._config.table.anchor == "behaviour" else old,
            advantages=experience.advantages[places].to(logprobs),
            lengths=kept_lengths(kept, micro.lengths),
            entropy=scores.entropy[kept],
            full=scores.full[kept],
            behaviour=behaviour,
            current=micro.current[kept],
            places=places,
        )

    def _kl(self, tokens: KeptTokens) -> Tensor | None:
        """KL to the reference. If unbiased, stale tokens are weighted by the ratio to the policy that sampled them."""
        if self._experience.reference is None:
            return None
        table = self._config.table
        own = tokens.logprobs if table.kl_support == "kept" else tokens.full
        reference = self._experience.reference[tokens.places].to(own)
        if table.kl_estimator.startswith("k3"):
            self._sums.add("kl_cut_share", k3_is_cut(own.detach(), reference))
        ratio = log_ratios(tokens.logprobs, tokens.behaviour).exp() if table.kl_unbiased else None
        return kl_per_token(own, reference, estimator=table.kl_estimator, ratio=ratio)

    def _compare(self, tokens: KeptTokens) -> None:
        """Compares trainer and engine: on tokens of the current version they must agree; on older ones they may not."""
        logprobs = tokens.logprobs.detach()
        gap = (logprobs - tokens.behaviour).abs()[tokens.current]
        self._sums.add("logprob_gap_mean", gap)
        self._sums.add("logprob_gap_tokens", float(len(gap)))
        self._sums.most("logprob_gap_max", gap)
        self._sums.mismatch("mismatch", mismatch_sums(logprobs, tokens.behaviour, tokens.lengths))
        lag = self._experience.lag[tokens.places].to(logprobs.device)
        for each in self._lags:
            of_lag = mismatch_sums(logprobs, tokens.behaviour, tokens.lengths, lag == each)
            self._sums.mismatch(f"lag{each}", of_lag)


def policy_gradient(context: StepContext, experience: Experience, rows: Sequence[int], *, first: bool) -> bool:
    """Accumulates the policy's gradient on the rollouts `rows`; False if none of their tokens is trained."""
    update = PolicyUpdate(context, experience, rows, first=first)
    if update.counts.tokens == 0:
        return False  # Even a gradient of zeros would move the weights, by the optimizer's moments.
    policy, config, sums = context.models.policy, context.config, context.sums
    sums.add("updates", float(policy.ranks.rank == 0))
    rollouts, examples = [context.batch.rollouts[row] for row in rows], _drawn(config, context.draw)
    shares, of_examples = (
        shares_of(some, policy, token_budget=config.micro_batch_tokens) if some else [] for some in (rollouts, examples)
    )
    for number, share in enumerate(shares):
        context.check()
        mine = [rollouts[place] for place in share.rows]
        micro = micro_batch(mine, policy.device)
        scores = score_tokens(policy, micro, chunk=config.logprob_chunk)
        loss = update.loss(scores, micro, [rows[place] for place in share.rows], counts=share.counts)
        _count_work(sums, policy, mine, counts=share.counts)
        policy.backward(loss, last=number + 1 == len(shares) and not of_examples)
    for number, share in enumerate(of_examples):
        context.check()
        mine = [examples[place] for place in share.rows]
        scores = score_tokens(policy, micro_batch(mine, policy.device), chunk=config.logprob_chunk)
        tokens = sum(len(example.trained) for example in examples)
        loss = -scores.logprobs.sum() * (config.table.ptx_coef / tokens if share.counts else 0.0)
        sums.add("ptx_loss", loss)
        _count_work(sums, policy, mine, counts=share.counts)
        policy.backward(loss, last=number + 1 == len(of_examples))
    return True


def _count_work(sums: Sums, policy: Backend, rollouts: Sequence[TrainRollout], *, counts: bool) -> None:
    """Counts the work of a share, unless it does not count and runs only for the collectives of other ranks."""
    rows = [row for rollout in rollouts for row in rollout.work] if counts else []
    sums.add(MODEL_FLOPS, float(training_flops(policy.module.compute, rows)))


def _drawn(config: StepConfig, draw: torch.Generator) -> list[TrainRollout]:
    """The pretraining examples of this update; every rank draws the same."""
    if not config.table.ptx_coef:
        return []
    rows = torch.randint(len(config.ptx), (config.table.ptx_rows,), generator=draw)
    return [config.ptx[row] for row in rows.tolist()]
