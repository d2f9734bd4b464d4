"""Writes the journal: one segment a life, every record fsynced before the call returns."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.wire.errors import FencedError
from headrace.wire.host.disk_fault import writing
from headrace.wire.journal.framing import MAGIC, frame
from headrace.wire.journal.payloads import FOLDER, payload_name, write_payload
from headrace.wire.journal.reader import JournalRecord, highest_incarnation, segment_name
from headrace.wire.journal.records import BatchRecord, DroppedRecord, IncarnationRecord, Record, StepDoneRecord, pack
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic


class JournalWriter:
    """Appends to the segment of one incarnation. Not thread-safe: its owner holds a lock."""

    def __init__(self, folder: Path, incarnation: int, descriptor: int) -> None:
        self.folder = folder
        self.incarnation = incarnation
        self._file = descriptor
        self._broken: OSError | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        incarnation: int,
        version: int,
        weights_digest: str,
        read_to: Mapping[str, int],
        code_digest: str = "",
    ) -> "JournalWriter":
        """Begins the segment of `incarnation` and seals the older ones at `read_to` (segment name -> length).

        `read_to` is what the caller has read and replayed (see `read_lengths`), `code_digest` that of the user's own
        code. Raises FencedError if this or a higher
        incarnation has a segment already.
        """
        with writing(folder):
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        highest = highest_incarnation(folder)
        if highest >= incarnation:
            raise FencedError(f"{folder} already has a segment of incarnation {highest}, this one is {incarnation}")
        path = folder / segment_name(incarnation)
        try:
            with writing(path):
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as error:
            raise FencedError(f"{path} was opened by another trainer") from error
        writer = cls(folder, incarnation, descriptor)
        head = IncarnationRecord(
            incarnation=incarnation,
            version=version,
            weights_digest=weights_digest,
            seals=dict(read_to),
            code_digest=code_digest,
        )
        writer._write(MAGIC + frame(*pack(head)))
        atomic.sync(folder)
        atomic.sync(folder.parent)
        return writer

    def batch(self, step: int, groups: Sequence[tuple[int, str]], messages: Sequence[bytes]) -> BatchRecord:
        """Journals the batch of `step`: `groups` as (index, id) in training order, with their messages."""
        name = payload_name(self.incarnation, step)
        record = BatchRecord(
            step=step,
            group_indices=tuple(index for index, _ in groups),
            group_ids=tuple(group for _, group in groups),
            digest=write_payload(self.folder, name, messages),
            payload=name,
        )
        self._append(record)
        return record

    def step_done(self, step: int, weights_digest: str) -> None:
        """Journals the end of a step."""
        self._append(StepDoneRecord(step=step, weights_digest=weights_digest))

    def dropped(self, drops: Sequence[DroppedRecord]) -> None:
        """Journals drops, with one fsync for all of them."""
        if drops:
            self._write(b"".join(frame(*pack(record)) for record in drops))

    def fence(self) -> None:
        """Raises FencedError if a later incarnation has a segment: everything written here is void."""
        highest = highest_incarnation(self.folder)
        if highest > self.incarnation:
            raise FencedError(f"incarnation {highest} has a segment in {self.folder}, {self.incarnation} is over")

    def close(self) -> None:
        """Closes the segment; it stays the newest until the next incarnation."""
        os.close(self._file)

    def _append(self, record: Record) -> None:
        self._write(frame(*pack(record)))

    def _write(self, data: bytes) -> None:
        """Nothing may follow a record that is not whole: after a failed write (a full disk) no more are accepted."""
        if self._broken:
            why = "an earlier write to the journal failed; the process must end and read it again"
            raise OSError(why) from self._broken
        self.fence()
        try:
            with writing(self.folder / segment_name(self.incarnation), len(data)):
                failpoints.reach("journal.before_write")
                atomic.write_whole(self._file, data)
                failpoints.reach("journal.written")
                os.fsync(self._file)
                failpoints.reach("journal.synced")
        except OSError as error:
            self._broken = error
            raise


def read_lengths(records: Sequence[JournalRecord]) -> dict[str, int]:
    """How far each segment was read: what the next incarnation seals."""
    lengths: dict[str, int] = {}
    for record in records:
        lengths[record.segment] = max(record.end, lengths.get(record.segment, 0))
    return lengths
