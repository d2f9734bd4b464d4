"""Hashes the weights of a folder directly from safetensors files: no torch, any dtype.

It hashes the same bytes as `headrace.wire.weights.weights_sha256`: sorted names, each with dtype, shape and data.
"""

import hashlib
import mmap
from pathlib import Path

from headrace.model.weight_scan import StoredWeight, stored_weights
from headrace.wire.errors import DataError

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_BLOCK = 1 << 24


def weights_sha256(files: list[Path]) -> str:
    """Hex sha256 over sorted (name, dtype, shape, bytes). Raises DataError for a file that is not safetensors.

    Of a name that several files have, each has rows of one tensor, in the order of the files.
    """
    state = hashlib.sha256()
    try:
        tensors: dict[str, list[StoredWeight]] = {}
        for one in (one for path in files for one in stored_weights(path)):
            tensors.setdefault(one.name, []).append(one)
        for name, parts in sorted(tensors.items()):
            first, *more = parts
            shape = (sum(one.shape[0] for one in parts), *first.shape[1:]) if more else first.shape
            state.update(f"{name}|{_DTYPES[first.kind]}|{shape}\n".encode())
            for one in parts:
                if one.end > one.file.stat().st_size:
                    raise ValueError("it is cut short")
                if one.end > one.begin:
                    _update(state, one.file, one.begin, one.end)
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        # Not in its own words: these may quote the file.
        raise DataError(f"{', '.join(map(str, files))}: not safetensors, or cut short") from None
    return state.hexdigest()


def _update(state: "hashlib._Hash", path: Path, begin: int, end: int) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # In blocks: a page that was read is let go while the next ones come.
        for place in range(begin, end, _BLOCK):
            state.update(data[place : min(place + _BLOCK, end)])
