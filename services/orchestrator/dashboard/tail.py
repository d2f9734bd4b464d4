"""A file of lines that another process appends to: what came since the last look, whole lines only."""

import os
from dataclasses import dataclass
from pathlib import Path

CHUNK = 8 * 1024 * 1024
"""Bytes of one look; a longer line is passed over."""
_SEAM = 64
"""So many bytes before the place read to tell whether the file is still the one that was read."""


@dataclass(frozen=True, slots=True)
class Added:
    """Whole lines; `anew` = they are the first of a file that was replaced, cut or rewritten."""

    data: bytes = b""
    anew: bool = False


class Tail:
    """Of one file, which need not be there yet. Blocking."""

    def __init__(self, path: Path, *, newest: int = 0) -> None:
        """With `newest`, only about so many bytes at the file's end are ever read at first; 0 = all."""
        self._path = path
        self._newest = newest
        self._file = (0, 0)
        self._offset = 0
        self._seam = b""

    def read(self) -> Added:
        """The next lines, up to `CHUNK` bytes: empty when there are no more for now, or the file cannot be read."""
        try:
            with self._path.open("rb") as file:
                return self._read(file.fileno())
        except OSError:
            return Added(anew=self._forget() > 0)

    def _read(self, file: int) -> Added:
        found = os.fstat(file)
        anew = False
        if (found.st_dev, found.st_ino) != self._file or not self._is_the_same(file, found.st_size):
            anew = self._forget() > 0
            self._file = (found.st_dev, found.st_ino)
            self._skip(file, found.st_size)
        data = os.pread(file, CHUNK, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == CHUNK:
            end = CHUNK
        whole = data[:end]
        if whole:
            self._offset += end
            self._seam = (self._seam + whole[-_SEAM:])[-_SEAM:]
        return Added(whole, anew)

    def _is_the_same(self, file: int, size: int) -> bool:
        start = self._offset - len(self._seam)
        return size >= self._offset and os.pread(file, len(self._seam), start) == self._seam

    def _skip(self, file: int, size: int) -> None:
        """To the first whole line of the newest bytes."""
        if self._newest and size > self._newest:
            start = size - self._newest
            self._offset = start + os.pread(file, CHUNK, start).find(b"\n") + 1

    def _forget(self) -> int:
        """Returns how far the file had been read."""
        read, self._offset, self._seam, self._file = self._offset, 0, b"", (0, 0)
        return read
