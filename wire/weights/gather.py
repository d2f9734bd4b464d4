"""Whole tensors out of the shards of a trainer with several ranks."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate

from headrace.wire.errors import TransientError


def gather(tensors: Sequence[Tensor], dtype: torch.dtype) -> Iterator[Tensor]:
    """Each tensor whole, cast to `dtype` before it travels; one that is not sharded is given as it is.

    All gathers are under way at once, so give a bucket's worth. Every rank of the shards' mesh must call this with its
    shards of the same tensors in the same order. Raises TransientError when a rank is lost or never comes.
    """
    pending: list[Tensor] = []
    try:
        for tensor in tensors:
            plain = tensor.detach()
            if isinstance(plain, DTensor):
                everywhere = [Replicate()] * plain.device_mesh.ndim
                cast = plain.to(dtype)
                assert isinstance(cast, DTensor)
                plain = cast.redistribute(placements=everywhere, async_op=True)
            pending.append(plain)
        for whole in pending:
            yield _arrived(whole)
    except RuntimeError as error:
        raise TransientError(f"the gather of {len(tensors)} weights from all ranks failed: {error}") from error


def _arrived(tensor: Tensor) -> Tensor:
    """Waits here, where a lost rank can be named, and not wherever the values are first used."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if isinstance(local, AsyncCollectiveTensor):
        waited = local.wait()
        assert isinstance(waited, Tensor)
        return waited
    return local
