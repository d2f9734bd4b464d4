"""Reads the journal and events of a run into one plain structure. Reports damage, checks nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    JournalDamagedError,
    StepDoneRecord,
    read_journal,
)
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True)
class Batch:
    """One journaled batch."""

    incarnation: int
    record: BatchRecord


@dataclass(slots=True)
class RunHistory:
    """Everything that the rules check."""

    run_dir: Path
    batches: list[Batch] = field(default_factory=list)
    drops: list[DroppedRecord] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Steps whose end is journaled, in journal order."""
    incarnations: list[int] = field(default_factory=list)
    issued: dict[int, str] = field(default_factory=dict)
    """Group index -> id, from the orchestrator's events."""
    ended_open: set[str] = field(default_factory=set)
    """Ids of groups that were open when a run ended."""
    has_ended: bool = False
    """The last event of the orchestrator is `run_ended`."""
    committed: set[tuple[str, int, int, str]] = field(default_factory=set)
    """(replica, incarnation, version, digest) that a replica proved and committed."""
    generated: dict[str, set[str]] = field(default_factory=dict)
    """Group id -> replicas and environment workers that reported it as generated."""
    batch_events: list[dict[str, Any]] = field(default_factory=list)
    exported: str | None = None
    """Weights hash of the last export, as reported by the trainer."""
    damage: list[str] = field(default_factory=list)


def read_history(run_dir: Path) -> RunHistory:
    """Journal and events of a run directory; damage becomes a problem, not an error."""
    history = RunHistory(run_dir)
    try:
        _read_journal(history)
    except JournalDamagedError as error:
        history.damage.append(f"the journal is damaged: {error}")
    last: tuple[float, str] = (0.0, "")
    for event in read_events(run_dir):
        _take(history, event)
        if str(event["source"]).startswith("orchestrator"):
            told = (number_of(event.get("t")) or 0.0, str(event.get("event")))
            last = told if told[0] >= last[0] else last
    history.has_ended = last[1] == "run_ended"
    return history


def _read_journal(history: RunHistory) -> None:
    for item in read_journal(RunPaths(history.run_dir).journal):
        match item.record:
            case BatchRecord() as record:
                history.batches.append(Batch(item.incarnation, record))
            case DroppedRecord() as record:
                history.drops.append(record)
            case StepDoneRecord() as record:
                history.done.append(record.step)
            case IncarnationRecord() as record:
                history.incarnations.append(record.incarnation)


def _take(history: RunHistory, event: dict[str, Any]) -> None:
    match event.get("event"):
        case "issued":
            history.issued[int(event["group_index"])] = str(event["group_id"])
        case "run_ended":
            history.ended_open.update(event.get("open_groups", ()))
        case "weights_committed":
            history.committed.add((committer(event), event["incarnation"], event["version"], event["digest"]))
        case "group_generated":
            history.generated.setdefault(str(event["group_id"]), set()).add(worker_of(event))
        case "batch":
            history.batch_events.append(event)
        case "exported":
            history.exported = str(event["weights_sha256"])


def committer(event: Mapping[str, object]) -> str:
    """The replica that reported a commit."""
    return str(event.get("replica_id") or worker_of(event))


def worker_of(event: Mapping[str, object]) -> str:
    """The process that wrote an event, whichever of its lives it was: the file is events/WORKER-LIFE.jsonl."""
    return str(event["source"]).rpartition("-")[0]


def batches_by_step(history: RunHistory) -> Iterator[tuple[int, Batch]]:
    """The first batch of each step, in order of the steps."""
    first: dict[int, Batch] = {}
    for batch in history.batches:
        first.setdefault(batch.record.step, batch)
    yield from sorted(first.items())
