"""The batches' payloads: one file a step with the scored messages as they came, kept until a checkpoint covers them."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.wire.host.disk_fault import writing
from headrace.wire.journal.framing import JournalDamagedError
from headrace.wire.journal.records import BatchRecord
from headrace.wire.rundir import atomic

FOLDER = "payloads"
_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 1 << 31


def payload_name(incarnation: int, step: int) -> str:
    """Unique for each (incarnation, step), so a zombie never overwrites."""
    return f"{incarnation:06d}-{step:08d}.batch"


def write_payload(journal: Path, name: str, messages: Sequence[bytes]) -> str:
    """Writes and fsyncs the file and its folder; returns the digest. Raises DiskError, and leaves no part of a file."""
    data = b"".join(part for message in messages for part in (_LENGTH.pack(len(message)), message))
    path = journal / FOLDER / name
    # No rename: its name is new, and only the record that follows, with the digest, makes it count.
    try:
        with writing(path, len(data)):
            path.write_bytes(data)
            atomic.sync(path)
            atomic.sync(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return hashlib.sha256(data).hexdigest()


def read_payload(journal: Path, record: BatchRecord) -> list[bytes]:
    """The batch's serialized messages in order.

    Raises FileNotFoundError if a checkpoint has covered it and it was removed, JournalDamagedError if it was altered.
    """
    return list(stream_payload(journal, record))


def stream_payload(journal: Path, record: BatchRecord) -> Iterator[bytes]:
    """As `read_payload`, with one message in memory at a time: the file is hashed in blocks before the first."""
    path = payload_path(journal, record)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != record.digest:
            raise JournalDamagedError(f"{path}: not the batch of step {record.step} that was journaled")
        file.seek(0)
        while head := file.read(_LENGTH.size):
            length = int.from_bytes(head, "little")
            message = file.read(length) if len(head) == _LENGTH.size and length <= _MOST_BYTES else b""
            if len(message) != length:
                raise JournalDamagedError(f"{path}: ends within a message, though its digest is right")
            yield message


def payload_path(journal: Path, record: BatchRecord) -> Path:
    """The file of a batch, whether or not it is still there."""
    return journal / FOLDER / record.payload


def has_payload(journal: Path, record: BatchRecord) -> bool:
    """Whether the batch is still there: no checkpoint has covered it yet."""
    return payload_path(journal, record).is_file()


def prune_payloads(journal: Path, covered_step: int) -> int:
    """Removes the payloads of steps up to `covered_step`; returns how many. The facts stay."""
    gone = [path for path in (journal / FOLDER).glob("*.batch") if int(path.stem.split("-")[1]) <= covered_step]
    for path in gone:
        path.unlink()
    return len(gone)
