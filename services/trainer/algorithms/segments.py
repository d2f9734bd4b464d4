"""Rollouts on the flat axis: sums, means, and recurrences of each rollout's own tokens.

Axes: tokens = the rollouts' trained tokens, one rollout after the other; rollouts = `lengths`, which may hold zeros.
No loop over rollouts, and one rollout's result never depends on its neighbours.
"""

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, Shaped, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def segment_sum(values: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """Sum over each rollout's tokens; 0 for an empty one. Differentiable, and the same bits every time."""
    if len(values) == 0:
        return values.new_zeros(len(lengths)) + values.sum()
    made: Tensor = torch.segment_reduce(values, "sum", lengths=lengths, initial=0.0)
    return made


@jaxtyped(typechecker=beartype)
def segment_mean(values: Float[Tensor, " tokens"], lengths: Int[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """Mean over each rollout's tokens; 0 for an empty one."""
    return segment_sum(values, lengths) / lengths.clamp(min=1)


@jaxtyped(typechecker=beartype)
def spread(values: Shaped[Tensor, " rollouts"], lengths: Int[Tensor, " rollouts"]) -> Shaped[Tensor, " tokens"]:
    """Each rollout's value, once for each of its tokens."""
    return values.repeat_interleave(lengths)


@jaxtyped(typechecker=beartype)
def last_tokens(lengths: Int[Tensor, " rollouts"]) -> Int[Tensor, " nonempty"]:
    """Places of the last tokens of the rollouts that have any, in order."""
    return lengths.cumsum(0)[lengths > 0] - 1


@jaxtyped(typechecker=beartype)
def carry_back(
    increments: Float[Tensor, " tokens"],
    factors: Float[Tensor, " tokens"],
    start: Float[Tensor, " rollouts"],
    lengths: Int[Tensor, " rollouts"],
) -> Float[Tensor, " tokens"]:
    """Solves x[t] = increments[t] + factors[t] * x[t + 1] in every rollout, where x past its last token is `start`.

    By doubling (Hillis and Steele, 1986): log2 of the longest rollout rounds, not one round a token. Factors are
    meant to lie in [0, 1].
    """
    ends = last_tokens(lengths)
    start = start.to(increments.dtype)[lengths > 0]
    solved = increments.index_add(0, ends, factors[ends] * start)
    factors = factors.index_fill(0, ends, 0.0)
    reach, longest = 1, int(lengths.max()) if len(lengths) else 0
    while reach < longest:
        solved = solved + factors * ahead(solved, reach)
        factors = factors * ahead(factors, reach)
        reach *= 2
    return solved


@jaxtyped(typechecker=beartype)
def ahead(values: Shaped[Tensor, " tokens"], places: int) -> Shaped[Tensor, " tokens"]:
    """The value `places` tokens further on the flat axis, 0 past its end; ignores where rollouts end."""
    places = min(places, len(values))
    return torch.cat([values[places:], values.new_zeros(places)])


@jaxtyped(typechecker=beartype)
def is_last(lengths: Int[Tensor, " rollouts"], tokens: int) -> Bool[Tensor, " tokens"]:
    """Whether each of the `tokens` tokens is the last of its rollout."""
    return torch.zeros(tokens, dtype=torch.bool, device=lengths.device).index_fill(0, last_tokens(lengths), True)
