"""How far a preparation is: the process that prepares writes it into a small file, which its parent shows."""

import contextlib
import os
from pathlib import Path

_LONGEST = 400
"""Bytes; each text is padded to as many, so that none is left of a longer one before it."""


class RowProgress:
    """Writes the row at which the preparation stands. Without a file it writes nothing."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: an existing file."""
        self._file = None if path is None else os.open(path, os.O_WRONLY)
        self._done = 0

    def begin(self, doing: str) -> None:
        """Begins to do something with rows."""
        self._done = 0
        self._write(doing)

    def at(self, place: str) -> None:
        """Comes to the next row."""
        self._write(f"rendering {place} ({self._done} rows done)")
        self._done += 1

    def _write(self, text: str) -> None:
        if self._file is not None:
            # A full disk for temporary files takes nothing from the preparation but this.
            with contextlib.suppress(OSError):
                os.pwrite(self._file, text.encode("utf-8", "replace")[:_LONGEST].ljust(_LONGEST), 0)


def read_progress(path: Path) -> str:
    """What was written last; empty before that."""
    return path.read_bytes().decode("utf-8", "replace").strip()
