"""Reads weights in safetensors files a block at a time, without torch."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire.rundir.model_files import read_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INFINITY = {
    "F64": ("<u8", 0x7FF << 52),
    "F32": ("<u4", 0xFF << 23),
    "F16": ("<u2", 0x1F << 10),
    "BF16": ("<u2", 0xFF << 7),
}
"""Formats that are looked into, as whole numbers: bits from infinity's on, without the sign, are not finite."""
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
    """Whether there is neither NaN nor infinity in it; True for formats that have no infinity."""
    _, infinity = _INFINITY.get(weight.kind, ("", 0))
    return not infinity or all((block << 1).max() < infinity << 1 for block in _blocks(weight))


def same_values(first: StoredWeight, second: StoredWeight) -> bool:
    """Whether two tensors have the same shape, format and bits."""
    import numpy as np

    pairs = zip_longest(_blocks(first), _blocks(second))
    return first[2:4] == second[2:4] and all(np.array_equal(one, other) for one, other in pairs)


def _blocks(weight: StoredWeight) -> Iterator["NDArray[np.unsignedinteger]"]:
    """Its bits in order, a value a number."""
    import numpy as np

    dtype = np.dtype(_INFINITY.get(weight.kind, ("u1", 0))[0])
    for begin in range(weight.begin, weight.end, _BLOCK * dtype.itemsize):
        yield np.fromfile(weight.file, dtype, min(_BLOCK, (weight.end - begin) // dtype.itemsize), offset=begin)
