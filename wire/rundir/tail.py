"""Follows a file of lines that another process appends to: reads the whole lines added since the last read."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.host.regular_file import open_regular

CHUNK = 8 * 1024 * 1024
"""Maximum bytes per read; a longer line is broken up, so its parser rejects it."""
_SEAM = 64
"""Bytes before the read position that are compared to detect that the file was rewritten."""


@dataclass(frozen=True, slots=True)
class Added:
    """New whole lines; `anew` = the file was replaced, truncated or rewritten, and was read from its start."""

    data: bytes = b""
    anew: bool = False


class Tail:
    """Reader of one file, which may not exist yet. Blocking."""

    def __init__(self, path: Path, *, newest: int = 0, from_end: bool = False) -> None:
        """`newest`: at first read only about this many bytes at the end of the file; 0 = all.

        `from_end`: skip what the file holds now.
        """
        self._path = path
        self._newest = newest
        self._file = (0, 0)
        self._offset = 0
        self._seam = b""
        if from_end:
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                self._file, self._offset = (found.st_dev, found.st_ino), found.st_size

    def read(self) -> Added:
        """The next lines, up to `CHUNK` bytes; empty if there are none yet, or the file cannot be read."""
        try:
            with open_regular(self._path) as file:
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
        """Advances to the first whole line of the newest bytes."""
        if self._newest and size > self._newest:
            start = size - self._newest
            self._offset = start + os.pread(file, CHUNK, start).find(b"\n") + 1

    def _forget(self) -> int:
        """Resets the read position; returns how far the file had been read."""
        read, self._offset, self._seam, self._file = self._offset, 0, b"", (0, 0)
        return read
