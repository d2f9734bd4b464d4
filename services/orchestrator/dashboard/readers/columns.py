"""Columns that grow on disk: memory holds the pages that a reader touches, until the next rows come.

Held in memory, the index of a run's rollouts grows by 50 bytes a rollout, and arrays that are copied to grow leave
holes of every size behind. A `TMPDIR` on a tmpfs holds them in memory all the same, though without the holes.
"""

import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_ROOM = 4096
"""Rows of the first file; each further file has twice as many."""


class DiskColumns:
    """Equally long columns in an unlinked temporary file (in `TMPDIR`).

    Rows are only appended, so views never change. They may be read on any thread, and outlive the columns. One writer
    at a time.
    """

    def __init__(self, kinds: Mapping[str, DTypeLike]) -> None:
        self._kinds = {name: np.dtype(kind) for name, kind in kinds.items()}
        self._count = 0
        self._file = _ColumnFile(self._kinds, _ROOM)

    def __len__(self) -> int:
        return self._count

    def append(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Adds rows; `columns` has an array of one length for every column. Raises OSError, and then adds none."""
        (added,) = {len(columns[name]) for name in self._kinds}
        if not added:
            return
        count = self._count + added
        file = self._file
        if count > file.room:
            file = _ColumnFile(self._kinds, max(count, 2 * file.room))
            file.write(self.view(), 0)
        file.write(columns, self._count)
        self._file, self._count = file, count

    def view(self) -> dict[str, NDArray[Any]]:
        """Every column, read-only; later rows are not in it."""
        return {name: self._file.column(name, self._count) for name in self._kinds}


class _ColumnFile:
    """Room for so many rows of each column, one column behind another."""

    def __init__(self, kinds: Mapping[str, np.dtype[np.generic]], room: int) -> None:
        self.room = room
        self._kinds = kinds
        self._starts: dict[str, int] = {}
        size = 0
        for name, kind in kinds.items():
            self._starts[name] = size
            size += -(-room * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
        self._descriptor, path = tempfile.mkstemp(prefix="headrace-columns-")
        weakref.finalize(self, os.close, self._descriptor)
        os.unlink(path)
        # Sparse: room takes no disk until it is written.
        os.ftruncate(self._descriptor, size)
        self._map = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ)

    def column(self, name: str, count: int) -> NDArray[Any]:
        """Its first rows, mapped."""
        return np.frombuffer(self._map, self._kinds[name], count, self._starts[name])

    def write(self, columns: Mapping[str, NDArray[np.generic]], row: int) -> None:
        """Writes rows from `row` on. Not through the mapping, where a full disk is a SIGBUS."""
        for name, kind in self._kinds.items():
            data = memoryview(np.ascontiguousarray(columns[name], kind).view(np.uint8).data)
            offset = self._starts[name] + row * kind.itemsize
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                data, offset = data[written:], offset + written
        # Pages that readers have touched stay in the page cache, no longer in this process.
        self._map.madvise(mmap.MADV_DONTNEED)
