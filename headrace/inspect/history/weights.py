"""Hashes the weights of a folder directly from safetensors files: no torch, any dtype.

It hashes the same bytes as `headrace.wire.weights.weights_sha256`: sorted names, each with dtype, shape and data.
"""

import hashlib
import json
import mmap
import struct
from pathlib import Path

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
    """Hex sha256 over sorted (name, dtype, shape, bytes). Raises DataError for a file that is not safetensors."""
    tensors = {}
    for path in files:
        for name, entry in _header(path).items():
            tensors[name] = (path, entry)
    state = hashlib.sha256()
    for name, (path, (dtype, shape, start, end)) in sorted(tensors.items()):
        state.update(f"{name}|{dtype}|{shape}\n".encode())
        if end > start:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                view = memoryview(data)[start:end]
                # In blocks: a page that was read is let go while the next ones come.
                for begin in range(0, end - start, _BLOCK):
                    state.update(view[begin : begin + _BLOCK])
                view.release()
    return state.hexdigest()


def same_layout(files: list[Path], others: list[Path]) -> bool:
    """Whether both have tensors of the same names, types and shapes. Raises DataError as `weights_sha256`."""
    one, other = (
        {name: entry[:2] for path in each for name, entry in _header(path).items()} for each in (files, others)
    )
    return one == other


def _header(path: Path) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        base = 8 + length
        size = path.stat().st_size
        entries = {
            name: (
                _DTYPES[entry["dtype"]],
                tuple(entry["shape"]),
                base + entry["data_offsets"][0],
                base + entry["data_offsets"][1],
            )
            for name, entry in header.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise DataError(f"{path} is not a safetensors file: {error!r}") from None
    if any(end > size for _, _, _, end in entries.values()):
        raise DataError(f"{path} is cut short")
    return entries
