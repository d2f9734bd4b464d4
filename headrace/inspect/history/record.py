"""Reads the journal and events of a run into one plain structure. Reports damage, checks nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from headrace.inspect.history.lines import fault_of, numbered_records
from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    JournalDamagedError,
    StepDoneRecord,
    read_journal,
)
from headrace.wire.rundir.events import committer, life_number, worker_of
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True)
class Batch:
    """One journaled batch."""

    incarnation: int
    record: BatchRecord


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """A model that the trainer has written to RUN/export."""

    weights_sha256: str
    step: int | None
    """None, as `files`, in a run of an older version."""
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
    versions: dict[tuple[int, int], str] = field(default_factory=dict)
    """(incarnation, version) -> digest of the weights: of each step's end, and of what each life began with."""
    issued: dict[int, str] = field(default_factory=dict)
    """Group index -> id, from the orchestrator's events, in their order."""
    issued_at: dict[int, int] = field(default_factory=dict)
    """Group index -> version at its first issue; as the trainer's newest fates that the orchestrator knew had it."""
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
    batch_events: list[Record] = field(default_factory=list)
    configs: list[Mapping[str, str]] = field(default_factory=list)
    """Name -> sha256 of the config's files, as each life of the trainer and each resuming command recorded them."""
    recorded_rollouts: dict[int, str] = field(default_factory=dict)
    """Step -> sha256 of its file, as last recorded."""
    rollouts_from: int = 0
    """Lowest step whose file was kept, when the last one was recorded."""
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    export: ExportRecord | None = None
    """The last one that was recorded."""
    is_replay: bool = False
    damage: list[str] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The last step whose end is journaled; 0 for none."""
        return max(self.done, default=0)


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
        for number, record in numbered_records(path, name, history.damage):
            if fault := fault_of(path, record):
                history.damage.append(f"{name} line {number} {fault}")
                continue
            event = record | {"source": path.stem}
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
    for item in read_journal(RunPaths(history.run_dir).journal):
        match item.record:
            case BatchRecord() as record:
                history.batches.append(Batch(item.incarnation, record))
            case DroppedRecord() as record:
                history.drops.append(record)
            case StepDoneRecord() as record:
                history.done.append(record.step)
                history.versions[item.incarnation, record.step] = record.weights_digest
            case IncarnationRecord() as record:
                history.incarnations.append(record.incarnation)
                history.versions[record.incarnation, record.version] = record.weights_digest


def _take(history: RunHistory, event: Record) -> None:
    """Takes one whole event: its fields are those of `lines.NEEDED`."""
    match event["event"]:
        case "issued":
            index = cast(int, event["group_index"])
            history.issued[index] = str(event["group_id"])
            history.issued_at.setdefault(index, cast(int, event.get("min_version", 0)))
        case "run_ended":
            history.ended_open.update(cast(list[str], event["open_groups"]))
        case "weights_committed":
            incarnation, version = cast(int, event["incarnation"]), cast(int, event["version"])
            history.committed.add((committer(event), incarnation, version, str(event["digest"])))
        case "group_generated":
            history.generated.setdefault(str(event["group_id"]), set()).add(worker_of(event))
        case "batch":
            history.batch_events.append(event)
        case "replay_began":
            history.is_replay = True
        case _:
            _take_of_chain(history, event)


def _take_of_chain(history: RunHistory, event: Record) -> None:
    """Takes an event that has digests of files."""
    match event["event"]:
        case "incarnation_opened" | "stage_began" | "config_written":
            if event.get("config") is not None:
                history.configs.append(cast(dict[str, str], event["config"]))
        case "step_recorded":
            if event["rollouts"]:
                history.recorded_rollouts[cast(int, event["step"])] = str(event["rollouts"])
            history.rollouts_from = cast(int, event["rollouts_from"])
        case "checkpoint_saved":
            kept = tuple(cast(list[int], event["kept"]))
            history.checkpoints.append(SavedCheckpoint(cast(int, event["step"]), str(event["manifest"]), kept))
        case "exported":
            history.export = ExportRecord(
                str(event["weights_sha256"]),
                cast(int | None, event.get("step")),
                cast(dict[str, str] | None, event.get("files")),
            )


def batches_by_step(history: RunHistory) -> Iterator[tuple[int, Batch]]:
    """The first batch of each step, in order of the steps."""
    first: dict[int, Batch] = {}
    for batch in history.batches:
        first.setdefault(batch.record.step, batch)
    yield from sorted(first.items())
