"""Reads weights in safetensors files a block at a time, without torch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.wire.rundir.model_files import read_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Formats that are looked into; numpy has no bfloat16, which is the upper half of a float32."""
_BLOCK = 4 << 20
"""Values read at a time."""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """One tensor in a file."""

    file: Path
    kind: str
    """Of the format: `BF16`."""
    shape: tuple[int, ...]
    begin: int
    """Offset of its first byte; `end`: behind its last."""
    end: int


def stored_weights(files: Iterable[Path]) -> dict[str, StoredWeight]:
    """All tensors by name. Raises OSError, ValueError for a file that is not whole."""
    found: dict[str, StoredWeight] = {}
    for file in files:
        header, start = read_header(file)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            found[name] = StoredWeight(file, entry["dtype"], tuple(entry["shape"]), start + begin, start + end)
    return found


def not_finite(tensors: Mapping[str, StoredWeight]) -> tuple[str, StoredWeight] | None:
    """The first tensor that holds NaN or infinity; None without one."""
    import numpy as np

    bad = (name for name, one in tensors.items() if not all(np.isfinite(block).all() for block in _blocks(one)))
    return next(((name, tensors[name]) for name in bad), None)


def same_values(first: StoredWeight, second: StoredWeight) -> bool:
    """Whether two tensors hold the same numbers, in whatever formats."""
    import numpy as np

    pairs = zip_longest(_blocks(first), _blocks(second))
    return first.shape == second.shape and all(np.array_equal(one, other) for one, other in pairs)


def _blocks(weight: StoredWeight) -> Iterator["NDArray[np.floating]"]:
    """Its values in order; nothing of a format that is not of `_FLOATS`."""
    import numpy as np

    if weight.kind not in _FLOATS:
        return
    dtype = np.dtype(_FLOATS[weight.kind])
    with weight.file.open("rb", buffering=0) as file:
        file.seek(weight.begin)
        for begin in range(weight.begin, weight.end, _BLOCK * dtype.itemsize):
            size = min(_BLOCK * dtype.itemsize, weight.end - begin)
            block = np.fromfile(file, dtype, size // dtype.itemsize)
            yield (block.astype("<u4") << 16).view("<f4") if weight.kind == "BF16" else block
