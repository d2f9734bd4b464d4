"""Sampling as a pure function of logits, parameters, seed and position: a token never depends on other rows.

Axes: rows = running rollouts, vocab = tokens of the vocabulary. The random number of a token is a hash of (seed of the
rollout, number of the token), so there is no generator whose state could depend on the order of the work.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
"""The constants of SplitMix64 (Steele, Lea and Flood, 2014) as signed numbers."""


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling parameters of each row; tensors [rows], except `stops`."""

    seed: Tensor
    """int64"""
    inverse_temperature: Tensor
    """float32; 1 for greedy rows"""
    top_k: Tensor
    """int64; the most ids of a row that is `cut`"""
    top_p: Tensor
    """float64; 1 = off"""
    min_p: Tensor
    """float64; 0 = off"""
    cut: Tensor
    """bool: drawn from a distribution that top_k, top_p and min_p cut off"""
    greedy: Tensor
    """bool"""
    forced_length: Tensor
    """int64; 0 = off: token number forced_length is the first stop token, and none before is a stop token"""
    stops: Tensor
    """int64 [rows, stop ids], padded with -1"""


@dataclass(frozen=True, slots=True)
class RowKinds:
    """Which kinds of sampling occur among the rows; the code for the others is skipped."""

    tempered: bool
    truncated: int
    """Most ids that a row with a cut-off distribution is drawn from; 0 = no row has one."""
    greedy: bool
    forced: bool


def uniform(seeds: Tensor, counters: Tensor) -> Tensor:
    """float64 in (0, 1), elementwise: SplitMix64's output number `counters` of the generator seeded with `seeds`."""
    mixed = seeds + (counters + 1) * _GOLDEN
    mixed = (mixed ^ _shift(mixed, 30)) * _MIX_1
    mixed = (mixed ^ _shift(mixed, 27)) * _MIX_2
    mixed = mixed ^ _shift(mixed, 31)
    # 48 bits, so that the product with a sum of probabilities cannot round up to that sum.
    return (_shift(mixed, 16).to(torch.float64) + 0.5) * 2.0**-48


def sample(logits: Tensor, rows: RowSampling, kinds: RowKinds, counts: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Draws one token for each row of float32 `logits` [rows, vocab]; `counts` [rows] = tokens sampled before.

    Returns tokens int64 [rows]; their logprobs float32 [rows], nats: log softmax(logits / temperature), over the ids
    that are left where the row has a cut; and these ids, bool [rows, vocab], if any row has one (see
    `truncation_mask`).
    """
    if kinds.tempered:
        logits = logits * rows.inverse_temperature[:, None]
    probabilities = logits.softmax(-1)
    allowed, kept, mass = probabilities, None, None
    if kinds.truncated:
        kept = truncation_mask(probabilities, rows, min(kinds.truncated, logits.shape[1]))
        allowed = torch.where(rows.cut[:, None] & ~kept, 0.0, probabilities)
        mass = torch.where(rows.cut, allowed.sum(-1), 1.0)
    if kinds.forced:
        allowed = _without_stops(allowed, rows)
    tokens = inverse_cdf(allowed, uniform(rows.seed, counts))
    if kinds.greedy:
        tokens = torch.where(rows.greedy, logits.argmax(-1), tokens)
    if kinds.forced:
        tokens = torch.where(counts + 1 == rows.forced_length, rows.stops[:, 0], tokens)
    chosen = probabilities.gather(1, tokens[:, None]).squeeze(1)
    return tokens, (chosen if mass is None else chosen / mass).log(), kept


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The index [rows] at which the running sum of `weights` [rows, vocab] first exceeds its share of the total.

    An index of weight 0 is never drawn, unless all weights are 0 or NaN.
    """
    sums = weights.cumsum(-1, dtype=torch.float64)
    return (
        torch.searchsorted(sums, (uniforms * sums[:, -1])[:, None], right=True)
        .squeeze(1)
        .clamp_(max=weights.shape[1] - 1)
    )


def truncation_mask(probabilities: Tensor, rows: RowSampling, most: int) -> Tensor:
    """Tokens that may be drawn, bool [rows, vocab]: see `Sampling`. Of a row without a cut none is marked.

    At most `most` of a row: the largest `top_k` of rows with a cut. Of equally likely tokens at the edge those with the
    lowest ids are kept, so that a row never depends on the others.
    """
    ranked = probabilities.topk(most, sorted=True).values
    before = ranked.cumsum(-1, dtype=torch.float64) - ranked
    kept = torch.arange(most, device=ranked.device) < rows.top_k[:, None]
    kept &= (before <= rows.top_p[:, None]) & (ranked >= rows.min_p[:, None] * ranked[:, :1])
    kept[:, 0] = True  # Even of a row of NaN.
    count = kept.sum(-1, keepdim=True)
    lowest = ranked.gather(1, count - 1)
    above, tied = probabilities > lowest, probabilities == lowest
    room = count - above.sum(-1, keepdim=True)
    return (above | (tied & (tied.cumsum(-1) <= room))) & rows.cut[:, None]


def _without_stops(weights: Tensor, rows: RowSampling) -> Tensor:
    """The weights, with stop tokens zeroed in rows with a forced length."""
    vocab = weights.shape[1]
    banned = torch.zeros(len(weights), vocab + 1, dtype=torch.bool, device=weights.device)
    banned.scatter_(1, torch.where(rows.stops < 0, vocab, rows.stops), True)
    return weights.masked_fill(banned[:, :vocab] & (rows.forced_length > 0)[:, None], 0.0)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own is arithmetic for int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
