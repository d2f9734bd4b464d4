"""Small JSON-lines files held in memory: the evaluations, and the run-level events."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from headrace.wire.api.fleet import PublicationTimeline
from headrace.wire.api.series import LogRecord
from headrace.wire.api.status import EvaluationRow
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.evals import VERSION
from headrace.wire.rundir.events import FREQUENT, began_at, confined_fault, name_of
from headrace.wire.rundir.jsonl import Record, parse, records
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.tail import Tail

_READ_S = 120.0
_NEWEST = 64 * 1024 * 1024
_KEPT = 2000
_KEPT_PUBLICATIONS = 200
PUBLICATION = "publication"
_TELLERS = ("orchestrator", "trainer", "environment")


class Evals:
    """The evaluations of `RUN/evals.jsonl`; the last line of a version counts."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._by_version: dict[int, EvaluationRow] = {}

    @property
    def all(self) -> tuple[EvaluationRow, ...]:
        """All evaluations, ordered by version."""
        return tuple(self._by_version[version] for version in sorted(self._by_version))

    async def look(self) -> list[EvaluationRow]:
        """Reads new lines and returns their evaluations."""
        added = await wait_for(asyncio.to_thread(self._tail.read), _READ_S, "evals.jsonl to be read")
        if added.anew:
            self._by_version = {}
        fresh = [EvaluationRow.of(record) for record in records(added.data) if type(record.get(VERSION)) is int]
        self._by_version.update((row.version, row) for row in fresh)
        return fresh


class RunLog:
    """Run-level events of orchestrator, trainer and environment workers over all their lives; none of single groups."""

    def __init__(self, run_dir: Path) -> None:
        self._run = RunPaths(run_dir)
        self._tails: dict[Path, Tail] = {}
        self._events: deque[LogRecord] = deque(maxlen=_KEPT)
        # Kept apart: there is one per step, and they would evict all other events.
        self._publications: deque[LogRecord] = deque(maxlen=_KEPT_PUBLICATIONS)
        self.began: float | None = None
        """Unix seconds, as `began_at` has it; None before the first look."""

    def newest(self, limit: int) -> list[LogRecord]:
        """The newest events, newest first."""
        return sorted((*self._events, *self._publications), key=_time, reverse=True)[:limit]

    def since(self, moment: float) -> list[LogRecord]:
        """Events after `moment` (unix seconds), oldest first."""
        newer = (record for record in (*self._events, *self._publications) if _time(record) > moment)
        return sorted(newer, key=_time)

    @property
    def publications(self) -> tuple[PublicationTimeline, ...]:
        """Publications, newest first."""
        return tuple(_timeline(record) for record in reversed(self._publications))

    async def look(self) -> list[LogRecord]:
        """Reads new events and returns them, oldest first."""
        fresh = await wait_for(asyncio.to_thread(self._read), _READ_S, "the event logs to be read")
        fresh.sort(key=_time)
        self._publications.extend(record for record in fresh if record.event == PUBLICATION)
        self._events.extend(record for record in fresh if record.event != PUBLICATION)
        return fresh

    def _read(self) -> list[LogRecord]:
        fresh: list[LogRecord] = []
        for path in (path for teller in _TELLERS for path in self._run.event_files(teller)):
            if path not in self._tails:
                self._tails[path] = Tail(path, newest=_NEWEST)
            while data := self._tails[path].read().data:
                fresh += _events(_wanted(data), path)
        if fresh or self.began is None:
            with contextlib.suppress(OSError):
                self.began = began_at(self._run.path)
        return fresh


def _time(record: LogRecord) -> float:
    return record.t


def _events(lines: Iterable[bytes], path: Path) -> Iterable[LogRecord]:
    service = path.stem.rpartition("-")[0]
    for line in lines:
        record = parse(line)
        if record is not None and _is_event(record) and not confined_fault(path, record):
            yield LogRecord.model_validate(record | {"service": service})


def _timeline(record: LogRecord) -> PublicationTimeline:
    return PublicationTimeline.model_validate(
        {**record.model_dump(exclude={"t", "event", "service"}), "ended": True}, extra="ignore"
    )


def _is_event(record: Record) -> bool:
    return isinstance(record.get("t"), int | float) and isinstance(record.get("event"), str)


def _wanted(data: bytes) -> Iterable[bytes]:
    """Lines of the events that are not too many to parse one by one."""
    return (line for line in data.split(b"\n") if line and name_of(line) not in FREQUENT)
