"""Reads the journal and events of a run into one plain structure. Reports damage, checks nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from headrace.inspect.history.lines import TRAINER, fault_of, numbered_records
from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    JournalDamagedError,
    StepDoneRecord,
    read_journal,
    segments,
)
from headrace.wire.rundir.events import life_number
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths

Entry = tuple[str, str]
"""Kind and content of a record that the journal and the trainer's events have, in one order."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One journaled batch."""

    incarnation: int
    record: BatchRecord


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the weights that the journal names."""

    incarnation: int
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Life:
    """The beginning of a life of the trainer, or a config that a command has written."""

    t: float
    source: str
    version: int
    config: Mapping[str, str] | None
    """Name -> sha256; None in a life of before the chain."""
    is_command: bool = False


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """A model that the trainer has written to RUN/export."""

    weights_sha256: str
    step: int | None
    """None, as the rest, if it is of before the chain."""
    weights_digest: str
    files: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that the trainer has written."""

    step: int
    manifest: str
    kept: tuple[int, ...]


@dataclass(slots=True)
class RunHistory:
    """Everything that the rules check."""

    run_dir: Path
    batches: list[Batch] = field(default_factory=list)
    drops: list[DroppedRecord] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Steps whose end is journaled, in journal order."""
    incarnations: list[int] = field(default_factory=list)
    segments: set[int] = field(default_factory=set)
    """Incarnations that have a journal segment, one that counts for nothing too."""
    versions: list[Version] = field(default_factory=list)
    """The digests of the weights that the journal names: of each step's end, and of what each life began with."""
    journaled: dict[int, list[Entry]] = field(default_factory=dict)
    """Incarnation -> the entries of its journal segment."""
    reported: dict[int, list[Entry]] = field(default_factory=dict)
    """Incarnation -> the entries of its event log."""
    event_lines: dict[str, int] = field(default_factory=dict)
    """Event log -> number of its events."""
    issued: dict[int, str] = field(default_factory=dict)
    """Group index -> id, from the orchestrator's events."""
    issued_at: dict[str, float] = field(default_factory=dict)
    """Group id -> unix seconds of its last issue."""
    ended_open: set[str] = field(default_factory=set)
    """Ids of groups that were open when a run ended."""
    has_ended: bool = False
    """The last event of the orchestrator is `run_ended`."""
    ended_version: int = -1
    """Version in that event."""
    committed: set[tuple[str, int, int, str]] = field(default_factory=set)
    """(replica, incarnation, version, digest) that a replica proved and committed."""
    generated: dict[str, set[str]] = field(default_factory=dict)
    """Group id -> replicas and environment workers that reported it as generated."""
    scored: set[str] = field(default_factory=set)
    """Ids of groups that a reward service reported as scored."""
    batch_events: list[Record] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    recorded_metrics: dict[int, set[str]] = field(default_factory=dict)
    """Step -> sha256 of its line in metrics.jsonl."""
    recorded_rollouts: dict[int, str] = field(default_factory=dict)
    """Step -> sha256 of its file, as last recorded."""
    rollouts_from: int = 0
    """Lowest step whose file was kept, when the last one was recorded."""
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    export: ExportRecord | None = None
    """The last one that was recorded."""
    receipts: list[str] = field(default_factory=list)
    """Receipts that the trainer recorded."""
    is_replay: bool = False
    damage: list[str] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The last step whose end is journaled; 0 for none."""
        return max(self.done, default=0)

    @property
    def unchained(self) -> int:
        """Up to this step no event has the digests of files: a version of before the chain has trained it."""
        chained = [life.version for life in self.lives if life.config is not None and not life.is_command]
        return min(chained) if chained else max([*self.done, *(batch.record.step for batch in self.batches)], default=0)

    @property
    def chained_since(self) -> float:
        """Unix seconds at which the chain began behind steps of an older version; 0 if it began with the run."""
        chained = [life.t for life in self.lives if life.config is not None and not life.is_command]
        return min(chained) if self.unchained and chained else 0.0

    @property
    def exported(self) -> str | None:
        """Weights hash of the last export, as reported by the trainer."""
        return self.export.weights_sha256 if self.export else None


def read_history(run_dir: Path) -> RunHistory:
    """Journal and events of a run directory; damage becomes a problem, not an error."""
    history = RunHistory(run_dir)
    try:
        _read_journal(history)
    except (JournalDamagedError, OSError) as error:
        history.damage.append(f"the journal is damaged: {error}")
    odd = [path.relative_to(run_dir).as_posix() for path in RunPaths(run_dir).odd_event_files()]
    history.damage += [f"{name} is no event log of its service, and was not read" for name in odd]
    last = (0, 0.0)
    for path in _event_files(run_dir):
        name = path.relative_to(run_dir).as_posix()
        end: Record | None = None
        for number, _, record in numbered_records(path, name, history.damage):
            if fault := fault_of(path, record):
                history.damage.append(f"{name} line {number} {fault}")
                continue
            event = record | {"source": path.stem}
            history.event_lines[path.stem] = history.event_lines.get(path.stem, 0) + 1
            _take(history, event)
            end = event
        # The order of lines and of lives, not of times: a clock may have been set back.
        if end is not None and path.stem.startswith("orchestrator"):
            place = (life_number(path), number_of(end.get("t")) or 0.0)
            if place >= last:
                last, history.has_ended = place, end["event"] == "run_ended"
                history.ended_version = cast(int, end["version"]) if history.has_ended else -1
    return history


def _event_files(run_dir: Path) -> list[Path]:
    """All event logs: those of one service in the order of its lives, where these have numbers."""

    def place(path: Path) -> tuple[str, int, str]:
        service, _, life = path.stem.rpartition("-")
        return service, int(life) if life.isdecimal() else 0, life

    return sorted(RunPaths(run_dir).event_files(), key=place)


def _read_journal(history: RunHistory) -> None:
    folder = RunPaths(history.run_dir).journal
    history.segments = {number for number, _ in segments(folder)}
    for item in read_journal(folder):
        entries = history.journaled.setdefault(item.incarnation, [])
        match item.record:
            case BatchRecord() as record:
                history.batches.append(Batch(item.incarnation, record))
                entries.append(("batch", f"{record.step} {record.digest}"))
            case DroppedRecord() as record:
                history.drops.append(record)
                entries.append(("dropped", record.group_id))
            case StepDoneRecord() as record:
                history.done.append(record.step)
                history.versions.append(Version(item.incarnation, record.step, record.weights_digest))
                entries.append(("step_done", f"{record.step} {record.weights_digest}"))
            case IncarnationRecord() as record:
                history.incarnations.append(record.incarnation)
                history.versions.append(Version(record.incarnation, record.version, record.weights_digest))


def _take(history: RunHistory, event: Record) -> None:
    """Takes one whole event: its fields are those of `lines.NEEDED`."""
    match event["event"]:
        case "issued":
            history.issued[cast(int, event["group_index"])] = str(event["group_id"])
            history.issued_at[str(event["group_id"])] = number_of(event.get("t")) or 0.0
        case "run_ended":
            history.ended_open.update(cast(list[str], event["open_groups"]))
        case "weights_committed":
            incarnation, version = cast(int, event["incarnation"]), cast(int, event["version"])
            history.committed.add((committer(event), incarnation, version, str(event["digest"])))
        case "group_generated":
            history.generated.setdefault(str(event["group_id"]), set()).add(worker_of(event))
        case "group_scored":
            history.scored.add(str(event["group_id"]))
        case "batch":
            history.batch_events.append(event)
            _report(history, event, f"{event['step']} {event['digest']}")
        case "dropped":
            _report(history, event, str(event["group_id"]))
        case "step_done":
            _report(history, event, f"{event['step']} {event['weights_digest']}")
        case "replay_began":
            history.is_replay = True
        case _:
            _take_of_chain(history, event)


def _take_of_chain(history: RunHistory, event: Record) -> None:
    """Takes an event that has digests of files."""
    source, at = str(event["source"]), number_of(event.get("t")) or 0.0
    match event["event"]:
        case "incarnation_opened":
            config = cast(dict[str, str] | None, event.get("config"))
            version = event.get("version")
            history.lives.append(Life(at, source, version if isinstance(version, int) else 0, config))
        case "stage_began":
            history.lives.append(Life(at, source, cast(int, event["step"]), cast(dict[str, str], event["config"])))
        case "config_written":
            history.lives.append(Life(at, source, 0, cast(dict[str, str], event["config"]), is_command=True))
        case "step_recorded":
            step = cast(int, event["step"])
            if event["metrics"]:
                history.recorded_metrics.setdefault(step, set()).add(str(event["metrics"]))
            if event["rollouts"]:
                history.recorded_rollouts[step] = str(event["rollouts"])
            history.rollouts_from = cast(int, event["rollouts_from"])
        case "checkpoint_saved":
            kept = tuple(cast(list[int], event["kept"]))
            history.checkpoints.append(SavedCheckpoint(cast(int, event["step"]), str(event["manifest"]), kept))
        case "exported":
            history.export = ExportRecord(
                str(event["weights_sha256"]),
                cast(int | None, event.get("step")),
                str(event.get("weights_digest") or ""),
                cast(dict[str, str] | None, event.get("files")),
            )
        case "receipt_taken":
            history.receipts.append(str(event["receipt"]))


def _report(history: RunHistory, event: Record, content: str) -> None:
    source = str(event["source"])
    life = source.removeprefix(TRAINER)
    if source.startswith(TRAINER) and life.isdecimal():
        history.reported.setdefault(int(life), []).append((str(event["event"]), content))


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
