"""Rewards made of how long a completion is. Axes: rollouts."""

from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def overlong_penalty(
    lengths: Int[Tensor, " rollouts"], *, max_tokens: int, buffer: int, factor: float
) -> Float[Tensor, " rollouts"]:
    """Soft overlong punishment (DAPO, arXiv 2503.14476, equation 13), to be added to the reward: 0 to -`factor`.

    It falls linearly over the last `buffer` tokens before `max_tokens`. Capped at -`factor`, as in the paper and
    OpenRLHF; verl's has no lower bound. The paper: 4,096 of 20,480 tokens, factor 1.
    """
    return (-(lengths - (max_tokens - buffer)) / buffer).clamp(-1.0, 0.0) * factor
