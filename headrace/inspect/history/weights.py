"""Hashes the weights of a folder directly from safetensors files: no torch, any dtype.

It hashes the same bytes as `headrace.wire.weights.weights_sha256`: sorted names, each with dtype, shape and data.
"""

import hashlib
import mmap
import os
import struct
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from headrace.wire.errors import DataError
from headrace.wire.json_text import read_strict

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
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000
"""Bytes; the bound of the safetensors library."""
_Entry = tuple[str, tuple[int, ...], int, int]
"""Type, shape, and the range of its bytes in the file."""


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


def _header(path: Path) -> dict[str, _Entry]:
    """Tensor -> its entry, all of which lie within the file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_LENGTH.size)
            (length,) = _LENGTH.unpack(start) if len(start) == _LENGTH.size else (0,)
            # The length is the file's own word: nothing is allocated for what it does not have.
            if length > min(size - _LENGTH.size, _LONGEST_HEADER):
                raise DataError(f"{path} is not a safetensors file: its header would have {length} bytes")
            header = read_strict(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("no object")
        base = _LENGTH.size + length
        entries = {name: _entry(entry, base) for name, entry in header.items() if name != "__metadata__"}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError):
        # Not in its own words: these may quote the file.
        raise DataError(f"{path} is not a safetensors file: its header does not describe tensors") from None
    if any(end > size for _, _, _, end in entries.values()):
        raise DataError(f"{path} is cut short")
    return entries


def _entry(entry: JsonValue, base: int) -> _Entry:
    """What a header says of one tensor. Raises ValueError, KeyError, TypeError for anything else."""
    if not isinstance(entry, dict):
        raise ValueError("no object")
    shape, begin, end = entry["shape"], *cast(list[int], entry["data_offsets"])
    if not isinstance(shape, list) or any(type(one) is not int or one < 0 for one in (*shape, begin, end)):
        raise ValueError("no sizes")
    if begin > end:
        raise ValueError("it ends before it begins")
    return _DTYPES[cast(str, entry["dtype"])], cast(tuple[int, ...], tuple(shape)), base + begin, base + end
