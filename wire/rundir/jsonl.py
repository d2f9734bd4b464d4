"""Files of JSON lines: one object a line, appended whole. The reader of all of them, and their writer.

A crash may cut the last line: readers skip non-objects, and the next writer removes it. NaN and infinities, which
are not JSON, are null on both sides.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from headrace.wire.config.json_text import read_lenient
from headrace.wire.errors import DataError
from headrace.wire.host.disk_fault import writing
from headrace.wire.host.regular_file import open_regular
from headrace.wire.process import failpoints
from headrace.wire.rundir.atomic import write_whole

Record = dict[str, JsonValue]
"""One line."""
_BLOCK = 1 << 16
_END_BYTES = 256 * 1024


def parse(line: bytes) -> Record | None:
    """The object of a line; None for anything else."""
    try:
        record = read_lenient(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def records(data: bytes) -> Iterator[Record]:
    """The objects of some lines."""
    return (record for line in data.split(b"\n") if (record := parse(line)) is not None)


def read(path: Path) -> Iterator[Record]:
    """The objects of a file, which may be absent; one line is in memory at a time. Raises IrregularFileError."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        for line in file:
            record = parse(line)
            if record is not None:
                yield record


def read_backwards(path: Path, block: int = _BLOCK) -> Iterator[Record]:
    """The objects of a file, which may be absent, from its last line to its first, `block` bytes at a time.

    Raises IrregularFileError.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        end, rest = file.seek(0, os.SEEK_END), b""
        while end > 0:
            begin = max(0, end - block)
            file.seek(begin)
            first, *lines = (file.read(end - begin) + rest).split(b"\n")
            end, rest = begin, first
            for line in reversed(lines if begin else [first, *lines]):
                record = parse(line)
                if record is not None:
                    yield record


def last(path: Path) -> Record:
    """The last object within the last 256 KiB; empty if there is none, or the file cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    return next((record for line in reversed(lines) if (record := parse(line)) is not None), {})


def number_of(value: object) -> float | None:
    """A number that a double can hold; None for anything else. Python reads integers of any length from JSON."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def integer(record: Mapping[str, object], key: str) -> int:
    """An integer that the writer always sets. Raises DataError without one."""
    value = record.get(key)
    if type(value) is not int:
        raise DataError(f"a line has {value!r} as {key!r}, an integer is expected: {dict(record)}")
    return value


def numbered(rows: Iterable[Record], key: str) -> Iterator[tuple[int, Record]]:
    """The rows that have an integer under `key`, and if they have an accuracy, one that is a number."""
    for row in rows:
        found, accuracy = row.get(key), row.get("accuracy")
        if type(found) is int and (accuracy is None or number_of(accuracy) is not None):
            yield found, row


def repair(path: Path) -> None:
    """Cuts off a last line without an end, so that the next one begins a line. Only the file's writer may do it."""
    try:
        end = whole_lines(path)
    except FileNotFoundError:
        return
    if end < path.stat().st_size:
        os.truncate(path, end)


def whole_lines(path: Path) -> int:
    """The length of a file without a last line that has no end. Raises OSError."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


def append(path: Path, record: Mapping[str, object], *, durable: bool) -> bytes:
    """Appends one line; with `durable` it is on disk at the return, else a crash of the machine may lose it.

    Returns the line with its end. Raises OSError, DiskError if the disk refuses, and ValueError for a value that is
    not JSON.
    """
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
    line = json.dumps(finite, allow_nan=False).encode() + b"\n"
    with writing(path, len(line)), path.open("ab", buffering=0) as file:
        begin = file.seek(0, os.SEEK_END)
        try:
            failpoints.reach("line.before_append")
            write_whole(file.fileno(), line)
            failpoints.reach("line.appended")
            if durable:
                os.fsync(file.fileno())
                failpoints.reach("line.synced")
        except OSError:
            # The next line must begin one.
            file.truncate(begin)
            raise
    return line
