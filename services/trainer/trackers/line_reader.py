"""Reads a growing JSONL file from where it stopped: whole lines, a bounded number at a time."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST_BYTES = 1024 * 1024
_NOT_NUMBERS = ("t", "step", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line's numbers."""

    number: int
    """Number of the step, or of the version."""
    numbers: dict[str, float]
    at: float
    """Unix seconds; 0 = unknown."""
    end: int
    """Offset of the line's end in the file."""


class LineReader:
    """The lines of one file from an offset on. `key` names the field with a line's number."""

    def __init__(self, path: Path, key: str, offset: int = 0) -> None:
        self._path, self._key = path, key
        self.offset = offset
        """Lines before it are done."""

    def next(self) -> list[Line]:
        """Returns the next lines, some hundreds at most.

        The caller moves the offset, except past lines without numbers.
        """
        lines: list[Line] = []
        end = self.offset
        for raw in self._read().splitlines(keepends=True):
            if not raw.endswith(b"\n"):
                break
            end += len(raw)
            found = _line(raw, self._key, end)
            if found is not None:
                lines.append(found)
        if not lines:
            self.offset = end
        return lines

    def left(self) -> int:
        """Counts the complete lines that are not done."""
        count, offset = 0, self.offset
        while block := self._read(offset):
            count += block.count(b"\n")
            offset += len(block)
        return count

    def _read(self, offset: int | None = None) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset if offset is None else offset)
                return file.read(_MOST_BYTES)
        except FileNotFoundError:
            return b""


def _line(raw: bytes, key: str, end: int) -> Line | None:
    try:
        values: dict[str, Any] = json.loads(raw)
        numbers = {name: float(value) for name, value in values.items() if _is_number(name, value)}
        return Line(number=int(values[key]), numbers=numbers, at=float(values.get("t") or 0.0), end=end)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # A foreign or torn line: it has no numbers.


def _is_number(name: str, value: Any) -> bool:
    return name not in _NOT_NUMBERS and isinstance(value, bool | int | float) and math.isfinite(value)
