"""Losses of the critic, and measures of its estimates. Axes: tokens = trained tokens, quantiles = outputs of a head."""

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def value_loss(
    values: Float[Tensor, " tokens"],
    old_values: Float[Tensor, " tokens"],
    returns: Float[Tensor, " tokens"],
    *,
    clip: float,
    bound: float = 0.0,
) -> Float[Tensor, " tokens"]:
    """max(L(v - R), L(v_c - R)), v_c = v within +-`clip` of the value before the step; `clip` 0: L(v - R).

    PPO's clipped value loss. Clips in use: 0.5 (verl, OpenRLHF), 0.2 (TRL, slime, SkyRL), in units of the return.
    L(u) = 0.5 u^2; with a `bound` above 0 it is Huber's (1964): `bound` (|u| - `bound` / 2) where |u| is above it.
    """
    free = _cost(values - returns.detach(), bound)
    if clip == 0:
        return free
    bounded = old_values.detach() + (values - old_values.detach()).clamp(-clip, clip)
    return torch.maximum(free, _cost(bounded - returns.detach(), bound))


def _cost(error: Tensor, bound: float) -> Tensor:
    """Half the square; beyond a `bound` above 0 linear, with the slope that it has there."""
    squares = 0.5 * error.square()
    if bound == 0:
        return squares
    size = error.abs()
    return torch.where(size <= bound, squares, bound * (size - bound / 2))


@jaxtyped(typechecker=beartype)
def quantile_loss(
    quantiles: Float[Tensor, "tokens quantiles"], returns: Float[Tensor, " tokens"], *, kappa: float
) -> Float[Tensor, " tokens"]:
    """Quantile Huber loss of QR-DQN (arXiv 1710.10044): |tau_i - 1[u < 0]| L_kappa(u) / kappa, u = R - q_i.

    tau_i are the midpoints (2 i - 1) / 2 n; `kappa` 0 is the plain quantile loss |tau_i - 1[u < 0]| |u|. It is the
    mean over quantiles where the paper has the sum, so that their number does not scale the learning rate.
    """
    count = quantiles.shape[1]
    levels = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    error = returns.detach()[:, None] - quantiles
    size = _cost(error, kappa) / kappa if kappa > 0 else error.abs()
    return ((levels - (error.detach() < 0).to(levels.dtype)).abs() * size).mean(dim=1)


@jaxtyped(typechecker=beartype)
def quantile_mean(quantiles: Float[Tensor, "tokens quantiles"]) -> Float[Tensor, " tokens"]:
    """The value: the mean of the distribution that the quantiles describe."""
    return quantiles.mean(dim=1)


@jaxtyped(typechecker=beartype)
def quantile_spread(quantiles: Float[Tensor, "tokens quantiles"]) -> Float[Tensor, " tokens"]:
    """Standard deviation over the quantiles, in units of the return; detached. 0 for a critic of one output."""
    return quantiles.detach().std(dim=1, correction=0)


@jaxtyped(typechecker=beartype)
def spread_weights(spread: Float[Tensor, " tokens"], *, strength: float) -> Float[Tensor, " tokens"]:
    """Weights of mean 1 that shrink the advantages of tokens at which the critic is unsure.

    w = 1 / (1 + `strength` spread / mean spread), over its mean: the noise of an advantage grows with the spread of
    the return, so these tokens carry less signal. Ours, in the manner of weighting by inverse variance; `strength` 0 is
    none. `spread` must be of the whole batch (all ranks), or the weights depend on how it was cut.
    """
    mean = spread.mean()
    if len(spread) == 0 or float(mean) == 0 or strength == 0:
        return torch.ones_like(spread)
    weights = 1 / (1 + strength * spread / mean)
    return weights / weights.mean()


@jaxtyped(typechecker=beartype)
def explained_variance(values: Float[Tensor, " tokens"], returns: Float[Tensor, " tokens"]) -> Float[Tensor, ""]:
    """1 - var(R - V) / var(R): 1 for a perfect critic, 0 for a constant one, below it for a worse one.

    0 where returns do not vary (or there are fewer than two): there is nothing to explain.
    """
    if len(returns) < 2 or bool((returns == returns[0]).all()):
        return returns.new_zeros(())
    return 1 - (returns - values.detach()).var() / returns.var()
