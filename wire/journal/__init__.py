"""The trainer's write-ahead log: what was trained, in which order, and how every other group ended. No torch.

Facts (ids, steps, digests, drops) are in segment files that are never deleted, one for each incarnation of the trainer;
the batches' payloads are files of their own, which go when a checkpoint covers them.
"""

from headrace.wire.journal.framing import JournalDamagedError
from headrace.wire.journal.payloads import has_payload, payload_path, prune_payloads, read_payload, stream_payload
from headrace.wire.journal.reader import JournalRecord, highest_incarnation, read_journal, segments
from headrace.wire.journal.records import BatchRecord, DroppedRecord, IncarnationRecord, Record, StepDoneRecord
from headrace.wire.journal.writer import JournalWriter, read_lengths

__all__ = [
    "BatchRecord",
    "DroppedRecord",
    "IncarnationRecord",
    "JournalDamagedError",
    "JournalRecord",
    "JournalWriter",
    "Record",
    "StepDoneRecord",
    "has_payload",
    "highest_incarnation",
    "payload_path",
    "prune_payloads",
    "read_journal",
    "read_lengths",
    "read_payload",
    "segments",
    "stream_payload",
]
