"""Whole tensors out of the shards of a trainer with several ranks.

Replicas read snapshots, too, and have no shards: what DTensor needs is imported where there is one.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from headrace.wire.errors import TransientError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: Tensor) -> TypeGuard["DTensor"]:
    """Whether the tensor is a DTensor. The module is not imported for it: without it, no tensor is one."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(tensor, kind)


def gather(tensors: Sequence[Tensor], dtype: torch.dtype) -> Iterator[Tensor]:
    """Each tensor whole, cast to `dtype` before it travels; one that is not sharded is given as it is.

    All gathers are under way at once, so give a bucket's worth. Every rank of the shards' mesh must call this with its
    shards of the same tensors in the same order. Raises TransientError when a rank is lost or never comes.
    """
    pending: list[Tensor] = []
    try:
        for tensor in tensors:
            plain = tensor.detach()
            pending.append(_started(plain, dtype) if is_sharded(plain) else plain)
        for whole in pending:
            yield _arrived(whole)
    except RuntimeError as error:
        raise TransientError(f"the gather of {len(tensors)} weights from all ranks failed: {error}") from error


def _started(shard: "DTensor", dtype: torch.dtype) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    cast = shard.to(dtype)
    assert isinstance(cast, DTensor)
    return cast.redistribute(placements=[Replicate()] * cast.device_mesh.ndim, async_op=True)


def _arrived(tensor: Tensor) -> Tensor:
    """Waits here, where a lost rank can be named, and not wherever the values are first used."""
    if not is_sharded(tensor):
        return tensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    local = tensor.to_local()
    if isinstance(local, AsyncCollectiveTensor):
        waited = local.wait()
        assert isinstance(waited, Tensor)
        return waited
    return local
