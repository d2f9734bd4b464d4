"""Whitening: mean 0 and variance 1 over a whole batch."""

import torch
from beartype import beartype
from jaxtyping import Bool, Float, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def whiten(
    values: Float[Tensor, " values"], mask: Bool[Tensor, " values"] | None = None, *, shift_mean: bool = True
) -> Float[Tensor, " values"]:
    """(values - mean) / sqrt(var + 1e-8), var with Bessel's correction, as in verl (OpenRLHF's is the biased one).

    Statistics are over the places where `mask` is True. `values` must be the *whole* optimizer step's, of all ranks:
    statistics of a micro-batch would make the objective depend on how the batch was cut. With `shift_mean` False the
    mean stays (TRL's whitening of rewards). Raises ValueError with fewer than 2 values: they have no variance.
    """
    counted = values if mask is None else values[mask]
    if len(counted) < 2:
        raise ValueError(f"whitening needs the variance of at least 2 values, got {len(counted)}")
    var, mean = torch.var_mean(counted, correction=1)
    whitened = (values - mean) * torch.rsqrt(var + 1e-8)
    return whitened if shift_mean else whitened + mean
