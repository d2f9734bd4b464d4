"""Sampling as pure functions of logits, parameters, seed and position: a row's token never depends on its neighbours.

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

_CANDIDATES = 256
"""Nucleus sampling looks at so many of the likeliest tokens first and sorts all only if they do not do."""


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How each row is sampled; tensors [rows] but for `stops`."""

    seed: Tensor
    """int64"""
    inverse_temperature: Tensor
    """float32; 1 for greedy rows"""
    top_k: Tensor
    """int64; the vocabulary's size = off"""
    top_p: Tensor
    """float64; 1 = off"""
    greedy: Tensor
    """bool"""
    forced_length: Tensor
    """int64; 0 = off: token number forced_length is the first stop token, and none before is a stop token"""
    stops: Tensor
    """int64 [rows, stop ids], padded with -1"""


@dataclass(frozen=True, slots=True)
class RowKinds:
    """What occurs among the rows at hand: what does not is skipped."""

    tempered: bool
    truncated: bool
    greedy: bool
    forced: bool


def uniform(seeds: Tensor, counters: Tensor) -> Tensor:
    """float64 in (0, 1), elementwise: SplitMix64's output number `counters` of the generator seeded with `seeds`."""
    mixed = seeds + (counters + 1) * _GOLDEN
    mixed = (mixed ^ _shift(mixed, 30)) * _MIX_1
    mixed = (mixed ^ _shift(mixed, 27)) * _MIX_2
    mixed = mixed ^ _shift(mixed, 31)
    # 48 bits: the product with a sum of probabilities can then not round up to that sum.
    return (_shift(mixed, 16).to(torch.float64) + 0.5) * 2.0**-48


def sample(logits: Tensor, rows: RowSampling, kinds: RowKinds, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Draws one token for each row of float32 `logits` [rows, vocab]; `counts` [rows] = tokens sampled before.

    Returns tokens int64 [rows] and their logprobs float32 [rows], nats: log softmax(logits / temperature) over the full
    vocabulary, whatever was cut off for the draw.
    """
    if kinds.tempered:
        logits = logits * rows.inverse_temperature[:, None]
    probabilities = logits.softmax(-1)
    allowed = probabilities
    if kinds.truncated:
        allowed = probabilities * truncation_mask(probabilities, rows.top_k, rows.top_p)
    if kinds.forced:
        allowed = _without_stops(allowed, rows)
    tokens = inverse_cdf(allowed, uniform(rows.seed, counts))
    if kinds.greedy:
        tokens = torch.where(rows.greedy, logits.argmax(-1), tokens)
    if kinds.forced:
        tokens = torch.where(counts + 1 == rows.forced_length, rows.stops[:, 0], tokens)
    return tokens, probabilities.gather(1, tokens[:, None]).squeeze(1).log()


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


def truncation_mask(probabilities: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """What may be drawn, bool [rows, vocab]: the top_k likeliest, and of those the fewest whose share reaches top_p.

    Tokens as likely as the last one kept are kept too, so that the order among equals does not matter.
    """
    vocab = probabilities.shape[-1]
    ranked = probabilities.topk(min(vocab, _CANDIDATES), sorted=True).values
    lowest, unsure = _lowest_kept(ranked, top_k, top_p, vocab)
    if bool(unsure.any()):
        lowest, _ = _lowest_kept(probabilities.sort(descending=True).values, top_k, top_p, vocab)
    return probabilities >= lowest


def _lowest_kept(ranked: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """The smallest probability kept [rows, 1], judged by the likeliest ones, and where [rows] these are too few."""
    count = ranked.shape[1]
    within = top_k <= count
    among_k = torch.arange(count, device=ranked.device) < top_k[:, None]
    sums = (ranked * among_k).cumsum(-1, dtype=torch.float64)
    mass = torch.where(within | (count == vocab), sums[:, -1], 1.0)
    wanted = (top_p * mass)[:, None]
    kept = (among_k & (sums - ranked < wanted)).sum(-1, keepdim=True).clamp(min=1)
    # With top_p off, all of the top_k are kept, also those too small to move the sum.
    whole = (top_p >= 1)[:, None]
    kept = torch.where(whole, top_k.clamp(max=count)[:, None], kept)
    lowest = ranked.gather(1, kept - 1)
    off = (top_k >= vocab) & (top_p >= 1)
    # A top_k beyond the likeliest ones at hand: the mass it stands for is not known here.
    unsure = ~off & ~within & (count < vocab) & ((top_k < vocab) | (sums[:, -1] < wanted[:, 0]))
    return torch.where(off[:, None], 0.0, lowest), unsure


def _without_stops(weights: Tensor, rows: RowSampling) -> Tensor:
    """Rows with a forced length cannot draw a stop token."""
    vocab = weights.shape[1]
    banned = torch.zeros(len(weights), vocab + 1, dtype=torch.bool, device=weights.device)
    banned.scatter_(1, torch.where(rows.stops < 0, vocab, rows.stops), True)
    return weights.masked_fill(banned[:, :vocab] & (rows.forced_length > 0)[:, None], 0.0)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: torch's own copies the sign of int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
