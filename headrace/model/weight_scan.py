"""Reads weights in safetensors files a block at a time, without torch."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire.rundir.model_files import read_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Formats that are looked into; numpy has no bfloat16, which is the upper half of a float32."""
_BLOCK = 4 << 20
"""Values read at a time."""


class StoredWeight(NamedTuple):
    """One tensor in a file: its format (`BF16`) and shape, and its bytes from `begin` to `end`."""

    file: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def stored_weights(file: Path) -> Iterator[StoredWeight]:
    """All tensors of a file. Raises OSError, ValueError for one that is not whole."""
    header, start = read_header(file)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield StoredWeight(file, name, entry["dtype"], tuple(entry["shape"]), start + begin, start + end)


def is_finite(weight: StoredWeight) -> bool:
    """Whether there is neither NaN nor infinity in it."""
    import numpy as np

    return all(np.isfinite(block).all() for block in _blocks(weight))


def same_values(first: StoredWeight, second: StoredWeight) -> bool:
    """Whether two tensors hold the same numbers, in whatever formats."""
    import numpy as np

    pairs = zip_longest(_blocks(first), _blocks(second))
    return first.shape == second.shape and all(np.array_equal(one, other) for one, other in pairs)


def _blocks(weight: StoredWeight) -> Iterator["NDArray[np.floating]"]:
    """Its values in order; nothing of a format that is not of `_FLOATS`."""
    import numpy as np

    dtype = np.dtype(_FLOATS.get(weight.kind, "V1"))
    if weight.kind in _FLOATS:
        for begin in range(weight.begin, weight.end, _BLOCK * dtype.itemsize):
            count = min(_BLOCK, (weight.end - begin) // dtype.itemsize)
            block = np.fromfile(weight.file, dtype, count, offset=begin)
            yield (block.astype("<u4") << 16).view("<f4") if weight.kind == "BF16" else block
