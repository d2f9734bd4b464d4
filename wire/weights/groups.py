"""What a bucket never cuts: tensors that are converted in one call, and those that an engine needs in one."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from headrace.wire.weights.digest import dtype_name


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Tensors as they are held, and what is published of them."""

    sources: Sequence[Tensor]
    """Sharded ones are DTensors."""
    published: Sequence[tuple[str, tuple[int, ...]]]
    """Names and shapes, in the order of travel."""
    dtype: torch.dtype
    """What they are cast to before they are gathered."""
    convert: Callable[[Sequence[Tensor]], Sequence[Tensor]] = list
    """Whole sources in, published tensors out. It moves elements and computes nothing: a cast may come before it."""
    block: str = ""
    """Neighbours of one block share a bucket of any size; empty: in no block."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the published tensors."""
        return sum(math.prod(shape) for _, shape in self.published) * self.dtype.itemsize


def plain_group(name: str, tensor: Tensor, dtype: torch.dtype) -> WeightGroup:
    """A tensor that travels as it is."""
    return WeightGroup(sources=(tensor,), published=((name, tuple(tensor.shape)),), dtype=dtype)


def partition(groups: Iterable[WeightGroup], bucket_bytes: int) -> Iterator[list[WeightGroup]]:
    """One list a bucket: of one dtype, at most `bucket_bytes`, and more only where a group or block is larger."""
    part: list[WeightGroup] = []
    end = 0
    for unit in _units(groups):
        size = sum(group.size_bytes for group in unit)
        if part and (end + size > bucket_bytes or unit[0].dtype != part[0].dtype):
            yield part
            part, end = [], 0
        part += unit
        end += size
    if part:
        yield part


def _units(groups: Iterable[WeightGroup]) -> Iterator[list[WeightGroup]]:
    """Groups, those of one block together."""
    for (block, _), neighbours in groupby(groups, key=lambda group: (group.block, dtype_name(group.dtype))):
        if block:
            yield list(neighbours)
        else:
            yield from ([group] for group in neighbours)
