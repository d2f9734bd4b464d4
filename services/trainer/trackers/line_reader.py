"""Reads a growing JSONL file from where it stopped: whole lines, a bounded number at a time."""

from dataclasses import dataclass
from pathlib import Path

from headrace.wire.rundir.evals import VERSION
from headrace.wire.rundir.jsonl import number_of, parse
from headrace.wire.rundir.metrics import STEP, TIME

_MOST_BYTES = 1024 * 1024
_NOT_NUMBERS = (TIME, STEP, VERSION)


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
    record = parse(raw)
    number = record.get(key) if record else None
    if record is None or type(number) is not int:
        return None  # A foreign or torn line: it has no numbers.
    found = {name: _number(value) for name, value in record.items() if name not in _NOT_NUMBERS}
    numbers = {name: value for name, value in found.items() if value is not None}
    return Line(number=number, numbers=numbers, at=number_of(record.get(TIME)) or 0.0, end=end)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, bool) else number_of(value)
