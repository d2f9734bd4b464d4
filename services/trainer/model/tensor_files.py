"""Tensors in safetensors files, read by rows: rows that are not requested are neither read nor mapped.

The package's own slices map the file or read the tensor whole, and both count as this process's memory. Files are
hashed while they are written, for which the package has no way.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

import torch
from torch import Tensor

from headrace.wire.errors import ConfigError
from headrace.wire.rundir.model_files import read_header

_CHUNK_BYTES = 32 * 1024 * 1024
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """Offset of its first byte in the file."""

    @property
    def rows(self) -> int:
        """Size of its first dimension; a scalar is one row."""
        return self.shape[0] if self.shape else 1


def stored_tensors(paths: Iterable[Path]) -> dict[str, Stored]:
    """Returns all tensors of these files by name; if two files have a name, the later one counts, as in transformers.

    Raises ConfigError for a file that is not safetensors, or has an unknown dtype.
    """
    found: dict[str, Stored] = {}
    for path in paths:
        try:
            header, begin = read_header(path)
            for name, entry in header.items():
                place = begin + entry["data_offsets"][0]
                found[name] = Stored(path, _DTYPES[entry["dtype"]], tuple(entry["shape"]), place)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"model.path {path}: its header cannot be read: {error!r}") from error
    return found


def copy_rows(stored: Stored, into: Tensor, start: int = 0) -> None:
    """Fills `into` with as many rows as it has, from row `start`, cast to its dtype, on its device.

    Raises ConfigError for a file that is shorter than its header declares.
    """
    target = into if into.ndim else into[None]
    done = 0
    for chunk in _chunks(stored, start, len(target)):
        target[done : done + len(chunk)].copy_(chunk)
        done += len(chunk)


def read_whole(stored: Stored) -> Tensor:
    """Reads the tensor to the CPU, in the dtype of the file."""
    made = torch.empty(stored.shape, dtype=stored.dtype)
    copy_rows(stored, made)
    return made


def equal_in(first: Stored, second: Stored, dtype: torch.dtype) -> bool:
    """Whether both have the same shape, and the same values once they are cast to `dtype`."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return first.shape == second.shape and torch.equal(read_whole(first).to(dtype), read_whole(second).to(dtype))
    both = zip(_chunks(first, 0, first.rows), _chunks(second, 0, second.rows), strict=True)
    return all(torch.equal(one.to(dtype), other.to(dtype)) for one, other in both)


def _chunks(stored: Stored, start: int, count: int) -> Iterator[Tensor]:
    """Yields rows from `start`, a few at a time."""
    inner = stored.shape[1:]
    row_bytes = max(torch.Size(inner).numel() * stored.dtype.itemsize, 1)
    if not torch.Size(inner).numel():
        return
    each = max(_CHUNK_BYTES // row_bytes, 1)
    with stored.path.open("rb", buffering=0) as file:
        file.seek(stored.offset + start * row_bytes)
        while count > 0:
            rows = min(each, count)
            made = torch.empty(rows * row_bytes, dtype=torch.uint8)
            _read(file, made, stored.path)
            yield made.view(stored.dtype).view(rows, *inner)
            count -= rows


def _read(file: RawIOBase, made: Tensor, path: Path) -> None:
    view = made.numpy().data.cast("B")
    while view:
        count = file.readinto(view)
        if not count:
            raise ConfigError(f"model.path {path} is shorter than its header says: copy or download it again")
        view = view[count:]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, midway: Callable[[], None] = lambda: None) -> str:
    """Writes tensors of the CPU; returns the file's hex sha256. `midway` is called after half of the bytes.

    Raises OSError.
    """
    # The widest elements first: who maps the file needs each tensor aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, dict[str, object]] = {}
    size = 0
    for name, tensor in ordered:
        place = [size, size + tensor.nbytes]
        header[name] = {"dtype": _KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        size += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest, written = hashlib.sha256(), 0
    with path.open("wb") as file:
        head = len(text).to_bytes(8, "little") + text
        for block in _blocks(head, (tensor for _, tensor in ordered)):
            digest.update(block)
            file.write(block)
            if written < size / 2 <= written + len(block):
                midway()
            written += len(block)
    return digest.hexdigest()


def _blocks(head: bytes, tensors: Iterable[Tensor]) -> Iterator[bytes | memoryview]:
    yield head
    for tensor in tensors:
        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data.cast("B")
        yield from (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))
