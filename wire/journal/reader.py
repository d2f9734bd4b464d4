"""Reads a journal folder: all that counts, in order, with the seals applied."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.journal.framing import JournalDamagedError, unframe
from headrace.wire.journal.records import IncarnationRecord, Record, unpack

SEGMENT = re.compile(r"segment-(\d{6})\.journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """A record and where it stands."""

    incarnation: int
    segment: str
    end: int
    """Offset after the record: the segment's length if it is the last."""
    record: Record


def segment_name(incarnation: int) -> str:
    """The one segment of an incarnation."""
    return f"segment-{incarnation:06d}.journal"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """(incarnation, file) of all segments, oldest first."""
    found = ((SEGMENT.fullmatch(path.name), path) for path in folder.glob("segment-*.journal"))
    return sorted((int(match.group(1)), path) for match, path in found if match)


def highest_incarnation(folder: Path) -> int:
    """The highest incarnation that ever began a segment here, even one that counts for nothing; 0 for none."""
    return max((number for number, _ in segments(folder)), default=0)


def read_journal(folder: Path) -> Iterator[JournalRecord]:
    """Yields all records that count, oldest segment first.

    The newest segment's head records how far each older one was read; what is beyond is void, and a segment it does not
    name is void as a whole (its writer came too late). Raises JournalDamagedError, with file and offset, for anything
    that no crash and no zombie can have left behind.
    """
    opened = [(path, records) for number, path in segments(folder) if (records := _records(number, path))]
    if not opened:
        return
    newest, newest_records = opened[-1]
    head = newest_records[0].record
    assert isinstance(head, IncarnationRecord)
    for path, records in opened[:-1]:
        seal = head.seals.get(path.name, 0)
        if seal > records[-1].end:
            raise JournalDamagedError(
                f"{path} ends at offset {records[-1].end}, but {newest.name} read it to {seal}: it was cut"
            )
        yield from (record for record in records if record.end <= seal)
    missing = [name for name in head.seals if not (folder / name).exists()]
    if missing:
        raise JournalDamagedError(f"{folder}: {', '.join(missing)} is gone, but {newest.name} continues it")
    yield from newest_records


def _records(incarnation: int, path: Path) -> list[JournalRecord]:
    """All whole records of a segment; none if its head was never written whole."""
    records = [
        JournalRecord(
            incarnation=incarnation, segment=path.name, end=end, record=unpack(kind, payload, f"{path} before {end}")
        )
        for kind, payload, end in unframe(path.read_bytes(), str(path))
    ]
    if records:
        head = records[0].record
        if not isinstance(head, IncarnationRecord) or head.incarnation != incarnation:
            raise JournalDamagedError(f"{path} at offset 0: its head is not that of incarnation {incarnation}")
        for later in records[1:]:
            if isinstance(later.record, IncarnationRecord):
                raise JournalDamagedError(f"{path} before offset {later.end}: a second head")
    return records
