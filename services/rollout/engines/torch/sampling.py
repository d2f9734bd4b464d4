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

_CANDIDATES = 256
"""Nucleus sampling first considers this many of the likeliest tokens; it sorts all only if these do not suffice."""


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling parameters of each row; tensors [rows], except `stops`."""

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
    """Which kinds of sampling occur among the rows; the code for the others is skipped."""

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
    # 48 bits, so that the product with a sum of probabilities cannot round up to that sum.
    return (_shift(mixed, 16).to(torch.float64) + 0.5) * 2.0**-48


def sample(logits: Tensor, rows: RowSampling, kinds: RowKinds, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Draws one token for each row of float32 `logits` [rows, vocab]; `counts` [rows] = tokens sampled before.

    Returns tokens int64 [rows] and their logprobs float32 [rows], nats: log softmax(logits / temperature) over the full
    vocabulary, even if the draw was truncated.
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
    """Tokens that may be drawn, bool [rows, vocab]: the top_k likeliest, and of those the fewest that reach top_p.

    Ties with the last token kept are kept too, so that the order among equals does not matter.
    """
    vocab = probabilities.shape[-1]
    ranked = probabilities.topk(min(vocab, _CANDIDATES), sorted=True).values
    lowest, unsure = _lowest_kept(ranked, top_k, top_p, vocab)
    if bool(unsure.any()):
        lowest, _ = _lowest_kept(probabilities.sort(descending=True).values, top_k, top_p, vocab)
    return probabilities >= lowest


def _lowest_kept(ranked: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """The smallest probability kept [rows, 1], from the likeliest tokens, and where [rows] these are too few."""
    count = ranked.shape[1]
    within = top_k <= count
    among_k = torch.arange(count, device=ranked.device) < top_k[:, None]
    sums = (ranked * among_k).cumsum(-1, dtype=torch.float64)
    mass = torch.where(within | (count == vocab), sums[:, -1], 1.0)
    wanted = (top_p * mass)[:, None]
    kept = (among_k & (sums - ranked < wanted)).sum(-1, keepdim=True).clamp(min=1)
    # With top_p off, all of the top_k are kept, even those too small to change the sum.
    whole = (top_p >= 1)[:, None]
    kept = torch.where(whole, top_k.clamp(max=count)[:, None], kept)
    lowest = ranked.gather(1, kept - 1)
    off = (top_k >= vocab) & (top_p >= 1)
    # If top_k exceeds the candidates, the mass of the top_k tokens is not known here.
    unsure = ~off & ~within & (count < vocab) & ((top_k < vocab) | (sums[:, -1] < wanted[:, 0]))
    return torch.where(off[:, None], 0.0, lowest), unsure


def _without_stops(weights: Tensor, rows: RowSampling) -> Tensor:
    """The weights, with stop tokens zeroed in rows with a forced length."""
    vocab = weights.shape[1]
    banned = torch.zeros(len(weights), vocab + 1, dtype=torch.bool, device=weights.device)
    banned.scatter_(1, torch.where(rows.stops < 0, vocab, rows.stops), True)
    return weights.masked_fill(banned[:, :vocab] & (rows.forced_length > 0)[:, None], 0.0)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own is arithmetic for int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
