"""Journal records as frozen dataclasses, and their bytes: JSON, so that a person can read them too."""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from headrace.wire.journal.framing import JournalDamagedError


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationRecord:
    """The head of each segment: a life of the trainer begins, and every older segment ends where it was read to."""

    incarnation: int
    version: int
    """Version of the weights it begins with: the journal's end, replayed."""
    weights_digest: str
    seals: dict[str, int] = field(default_factory=dict)
    """Older segments' names and lengths in bytes; what a zombie appends beyond is void."""
    code_digest: str = ""
    """Hex sha256 of the user's own code that this life trains with; empty, and not written, for a run without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The groups of one optimizer step, in the order in which they are trained. Written before they are acked."""

    step: int
    group_indices: tuple[int, ...]
    group_ids: tuple[str, ...]
    digest: str
    """Hex sha256 of the payload file."""
    payload: str
    """Name of the file with the serialized messages; it may be gone when a checkpoint covers the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDoneRecord:
    """The optimizer step is over and its weights have this digest."""

    step: int
    weights_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord:
    """A group that will never be trained."""

    group_index: int
    group_id: str
    reason: str


Record = IncarnationRecord | BatchRecord | StepDoneRecord | DroppedRecord

_KINDS: dict[int, type[Record]] = {1: IncarnationRecord, 2: BatchRecord, 3: StepDoneRecord, 4: DroppedRecord}
_NUMBERS = {cls: number for number, cls in _KINDS.items()}


def pack(record: Record) -> tuple[int, bytes]:
    """A record's kind and payload."""
    values = asdict(record)
    if not values.get("code_digest", True):
        del values["code_digest"]
    return _NUMBERS[type(record)], json.dumps(values, separators=(",", ":")).encode()


def unpack(kind: int, payload: bytes, name: str) -> Record:
    """The record; raises JournalDamagedError for what no version of this project has written."""
    if kind not in _KINDS:
        raise JournalDamagedError(f"{name}: unknown record kind {kind}; a newer version of headrace wrote it")
    cls: Any = _KINDS[kind]
    try:
        values = json.loads(payload)
        known = {item.name for item in fields(cls)}
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        record = cast(Record, cls(**{key: value for key, value in given.items() if key in known}))
        _check_types(record)
        return record
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise JournalDamagedError(f"{name}: not a {cls.__name__}: {error}") from error


def _check_types(record: Record) -> None:
    """Raises TypeError for a field of another type than it is written with: its checksum proves no content."""
    numbers: tuple[object, ...] = ()
    texts: tuple[object, ...] = ()
    match record:
        case IncarnationRecord():
            numbers = (record.incarnation, record.version, *record.seals.values())
            texts = (record.weights_digest, record.code_digest, *record.seals)
        case BatchRecord():
            numbers, texts = (record.step, *record.group_indices), (record.digest, record.payload, *record.group_ids)
            if len(record.group_indices) != len(record.group_ids):
                raise TypeError(f"{len(record.group_indices)} indices of {len(record.group_ids)} groups")
        case StepDoneRecord():
            numbers, texts = (record.step,), (record.weights_digest,)
        case DroppedRecord():
            numbers, texts = (record.group_index,), (record.group_id, record.reason)
    for value in numbers:
        if type(value) is not int:
            raise TypeError(f"{value!r} is no integer")
    for value in texts:
        if type(value) is not str:
            raise TypeError(f"{value!r} is no text")
