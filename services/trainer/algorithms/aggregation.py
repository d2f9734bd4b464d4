"""From per-token losses to one number. Axes: tokens and rollouts of a micro-batch.

Every mode is a weighted sum over tokens whose weights depend only on the rollout's own length and on counts of the
*whole optimizer step*: so gradients accumulated over micro-batches, in any split, equal those of one big batch.
"""

from dataclasses import dataclass

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.names import Aggregation


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Counts over the whole optimizer step: all its micro-batches and ranks."""

    tokens: int
    """Trained tokens."""
    rollouts: int
    """Rollouts with at least one trained token."""
    norm_length: int
    """The constant of `seq-mean-token-sum-norm`: the longest completion allowed (Dr. GRPO, arXiv 2503.20783)."""


@jaxtyped(typechecker=beartype)
def rollout_weights(
    lengths: Int[Tensor, " rollouts"], *, mode: Aggregation, counts: StepCounts
) -> Float[Tensor, " rollouts"]:
    """Weight of each token of each rollout; `lengths` are trained tokens a rollout. float64."""
    ones = torch.ones(len(lengths), dtype=torch.float64, device=lengths.device)
    match mode:
        case "token-mean":
            return ones / counts.tokens
        case "token-sum":
            return ones
        case "seq-mean-token-mean":
            return ones / (counts.rollouts * lengths.clamp(min=1))
        case "seq-mean-token-sum":
            return ones / counts.rollouts
        case "seq-mean-token-sum-norm":
            return ones / (counts.rollouts * counts.norm_length)


@jaxtyped(typechecker=beartype)
def aggregate(
    per_token: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    mode: Aggregation,
    counts: StepCounts,
    kept: Bool[Tensor, " tokens"] | None = None,
) -> Float[Tensor, ""]:
    """The micro-batch's share of the step's loss. `per_token` holds the rollouts' tokens one after the other.

    Tokens that are not `kept` count nowhere: neither in the loss nor in the lengths (nor may they in `counts`).
    """
    if kept is None:
        weights = rollout_weights(lengths, mode=mode, counts=counts)
        return (per_token * weights.to(per_token.dtype).repeat_interleave(lengths)).sum()
    weights = rollout_weights(kept_lengths(kept, lengths), mode=mode, counts=counts)
    weighted = per_token * weights.to(per_token.dtype).repeat_interleave(lengths)
    return weighted.where(kept, 0.0).sum()


@jaxtyped(typechecker=beartype)
def kept_lengths(kept: Bool[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"]) -> Int[Tensor, " rollouts"]:
    """How many tokens of each rollout are kept."""
    rollouts = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    return torch.bincount(rollouts[kept], minlength=len(lengths))
