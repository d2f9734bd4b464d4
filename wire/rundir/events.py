"""`RUN/events/SERVICE-LIFE.jsonl`: what each process did; the history checker reads it after the run, or the crash.

Services that run user code (`CONFINED`) write to a folder of their own, `RUN/events/SERVICE/SERVICE-LIFE.jsonl`:
of the run directory a deployment lets them write to nothing else.

Every event has `t` (unix seconds) and `event`, its name; `EVENTS` has the keys of each.
"""

import contextlib
import json
import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.host.disk_fault import writing
from headrace.wire.host.regular_file import open_regular
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic, jsonl
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True)
class EventKind:
    """What an event of one name holds."""

    keys: tuple[str, ...]
    """Beside `t` and `event`; those of a failure are there only then."""
    frequent: bool = False
    """One a group, a step or a replica and version: a long run has millions."""


EVENTS: Mapping[str, EventKind] = {
    # The orchestrator's.
    "issued": EventKind(("group_index", "group_id", "attempt", "min_version", "sample_id", "trace"), frequent=True),
    "requeued": EventKind(("entry", "group_id", "dead_index", "row", "who")),
    "requeued_as": EventKind(("group_index", "dead_index", "row")),
    "publication": EventKind(()),  # The keys are those of `PublicationTimeline`.
    "publication_committed": EventKind(
        ("incarnation", "version", "replica_id", "digest", "route", "proof", "proof_note"), frequent=True
    ),
    "replica_quarantined": EventKind(("replica_id", "version", "reason")),
    "operator_action": EventKind(("action", "who", "said", "version")),
    "operator_checkpoint": EventKind(("version",)),
    "state_damaged": EventKind(("moved_to", "reason")),
    "run_stopped": EventKind(("version", "open_groups")),
    "run_ended": EventKind(("version", "open_groups", "again")),
    # The trainer's.
    "incarnation_opened": EventKind(("incarnation", "version", "config")),
    "stage_began": EventKind(("step", "config")),
    "batch": EventKind(("step", "group_ids", "digest", "discarded"), frequent=True),
    "dropped": EventKind(("group_id", "group_index", "reason"), frequent=True),
    "step_done": EventKind(("step", "weights_digest", "weights_digest_of_run"), frequent=True),
    "step_recorded": EventKind(("step", "rollouts", "rollouts_from"), frequent=True),
    "checkpoint_saved": EventKind(("step", "manifest", "kept")),
    "exported": EventKind(("path", "weights_sha256", "step", "weights_digest", "files")),
    "join_abandoned": EventKind(("replica", "group", "hanging", "hanging_of_all")),
    "replay_began": EventKind(("version", "last")),
    # A replica's.
    "weights_committed": EventKind(("incarnation", "version", "digest", "replica_id"), frequent=True),
    "group_generated": EventKind(("group_id", "attempt", "trace"), frequent=True),
    "group_aborted": EventKind(("group_id", "attempt", "reason")),
    "engine_asleep": EventKind(("seconds",)),
    "engine_awake": EventKind(("seconds",)),
    # The reward service's.
    "group_scored": EventKind(("group_id", "attempt", "trace"), frequent=True),
    # An environment worker's, beside `group_generated`.
    "abstentions_high": EventKind(("share", "episodes", "reasons", "lengths")),
    "segments_many": EventKind(("share", "turns", "reasons", "rollout_id")),
    "determinism_broken": EventKind(("rollout_id", "error")),
    # Those of a command which resumes a run.
    "config_written": EventKind(("config",)),
    "code_changed": EventKind(("before", "after", "files")),
}
"""Name -> what such an event holds."""
OF_CONFINED: Mapping[str, frozenset[str]] = {
    "environment": frozenset({"group_generated", "abstentions_high", "segments_many", "determinism_broken"}),
    "reward": frozenset({"group_scored"}),
}
"""Service that runs user code -> the events that it writes; others in its folder are forged."""
_ALIVE_S = 30.0
"""A run whose event logs and metrics have not grown for this long counts as stopped."""
_LAST_S = 2**40
"""A later time, in unix seconds, is none: no reader could show it."""
FREQUENT = frozenset(name for name, kind in EVENTS.items() if kind.frequent)
_HEAD = re.compile(rb'\{"t":-?\d+(?:\.\d+)?,"event":"(\w+)"')
"""How `EventLog` begins a line; lines of others are parsed."""
_NUMBERED = re.compile(r"-(\d{6})\.[0-9a-f]{8}$")


class EventLog:
    """Appends one JSON line an event to the file of one process and life.

    A line is handed to the kernel before `append` returns: it survives the death of the process, not of the machine.
    """

    def __init__(self, run_dir: Path, service: str, life: str | int, *, folder: Path | None = None) -> None:
        """`folder`: where it lies, for a service that has a folder of its own; none = RUN/events."""
        folder = folder or RunPaths(run_dir).events
        self.path = folder / f"{service}-{life}.jsonl"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            jsonl.repair(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lock = threading.Lock()

    def append(self, event: str, **fields: object) -> None:
        """Writes one event; `fields` are JSON values.

        Raises DiskError if the disk refuses, and then leaves no part of a line behind.
        """
        # Time and name first, without spaces: readers tell the frequent events by them.
        line = json.dumps({"t": round(time.time(), 3), "event": event, **fields}, separators=(",", ":"))
        data = line.encode() + b"\n"
        with self._lock, writing(self.path, len(data)):
            size = os.fstat(self._file).st_size
            try:
                failpoints.reach("event.before_append")
                atomic.write_whole(self._file, data)
                failpoints.reach("event.appended")
            except OSError:
                # The next line would go on in the middle of this one.
                os.ftruncate(self._file, size)
                raise

    def close(self) -> None:
        """Closes the file; a later event raises OSError."""
        with self._lock:
            os.close(self._file)
            # Its number may be another file's from now on.
            self._file = -1


def new_life(run_dir: Path, service: str) -> str:
    """The life of a new log, numbered after all logs of the service: times do not show which is the newest."""
    return f"{len(RunPaths(run_dir).event_files(service)) + 1:06d}.{secrets.token_hex(4)}"


def life_number(path: Path) -> int:
    """The number of a log's life (`new_life`); 0 for a log of an earlier version, which came before those with one."""
    found = _NUMBERED.search(path.stem)
    return int(found[1]) if found else 0


def name_of(line: bytes) -> str:
    """The name of a line's event; empty if it is none. Fast for lines of `EventLog`, right for any other."""
    found = _HEAD.match(line)
    if found:
        return found[1].decode()
    record = jsonl.parse(line)
    name = record.get("event") if record else None
    return name if isinstance(name, str) else ""


def confined_fault(path: Path, event: Record) -> str:
    """Why an event in the folder of a `CONFINED` service does not count, in words; empty if it does. Pure.

    User code in that service can write anything there. Events of other folders are not judged.
    """
    service, name = path.parent.name, event.get("event")
    if service not in OF_CONFINED:
        return ""
    if not isinstance(name, str) or name not in OF_CONFINED[service]:
        return f"({name if isinstance(name, str) and name in EVENTS else 'of no known name'}) is no event of {service}"
    at = number_of(event.get("t"))
    if at is None or not 0 <= at <= _LAST_S:
        return f"({name}) has no time"
    if "group_id" in EVENTS[name].keys and not isinstance(event.get("group_id"), str):
        return f"({name}) has no group_id, which is a string"
    if "attempt" in EVENTS[name].keys and type(event.get("attempt", 0)) is not int:
        return f"({name}) has another attempt than an integer"
    return ""


def read_events(
    run_dir: Path, *, wanted: Callable[[bytes], bool] | None = None, left_out: Counter[str] | None = None
) -> Iterator[Record]:
    """The events of a run, file by file, each with `source` (the file's stem); torn lines are skipped.

    `wanted`: which lines to parse, for readers that need few of them. What a `CONFINED` service did not write as one of
    its events (`confined_fault`) is left out, and counted in `left_out` under its source. Raises IrregularFileError.
    """
    for path in RunPaths(run_dir).event_files():
        with open_regular(path) as file:
            for line in file:
                if wanted is None or wanted(line):
                    record = jsonl.parse(line)
                    if record is None:
                        continue
                    if not confined_fault(path, record):
                        yield record | {"source": path.stem}
                    elif left_out is not None:
                        left_out[path.stem] += 1


def last_word(run_dir: Path) -> str:
    """The newest of `run_ended` and `run_stopped` in the orchestrator's newest log; empty if it went on, or was killed.

    Raises ValueError if there is no such log, and OSError if it cannot be read.
    """
    newest = max(
        RunPaths(run_dir).event_files("orchestrator"), key=lambda path: (life_number(path), path.stat().st_mtime)
    )
    for event in jsonl.read_backwards(newest):
        name = event.get("event")
        if name in ("run_ended", "run_stopped"):
            return str(name)
        if name == "issued":
            return ""
    return ""


def seems_alive(run_dir: Path, now: float) -> bool:
    """Whether an event log or the metrics were written within `_ALIVE_S` before `now`. Skips what cannot be read."""
    run, times = RunPaths(run_dir), [0.0]
    with contextlib.suppress(OSError):
        for path in (*run.event_files(), run.metrics):
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
    return now - max(times) < _ALIVE_S


_ENDS = {"run_ended": "finished", "run_stopped": "stopped"}


def state_of(run_dir: Path, *, alive: bool = False) -> str:
    """How a run stands, from its files: `finished`, `stopped`, `running` (`alive`, without a last word) or `prepared`.

    A run without an orchestrator is finished once it has exported its model, unless it is alive. Raises OSError.
    """
    run = RunPaths(run_dir)
    has_orchestrator = bool(run.event_files("orchestrator"))
    if has_orchestrator and (word := last_word(run_dir)):
        return _ENDS[word]
    if alive:
        return "running"
    if not has_orchestrator and run.export.is_dir():
        return "finished"
    return "stopped" if has_orchestrator or jsonl.last(run.metrics) else "prepared"


def began_at(run_dir: Path) -> float:
    """Unix seconds of the run's first event or step; before that, of its config's last write. Raises OSError.

    Confined services tell no times of the run.
    """
    run = RunPaths(run_dir)
    files = [*run.event_files("orchestrator"), *run.event_files("trainer"), run.metrics]
    lines = (next(jsonl.read(path), {}) for path in files)
    times = [at for line in lines if (at := number_of(line.get("t"))) is not None]
    return min(times) if times else run.run_toml.stat().st_mtime


def committer(event: Mapping[str, object]) -> str:
    """The replica that reported a commit."""
    return str(event.get("replica_id") or worker_of(event))


def worker_of(event: Mapping[str, object]) -> str:
    """The process that wrote an event, whichever of its lives it was: the file is events/WORKER-LIFE.jsonl."""
    return str(event["source"]).rpartition("-")[0]
