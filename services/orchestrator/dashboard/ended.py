"""An ended run, reconstructed from its files; answers the same queries as a live run."""

import contextlib
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.readers.numbers import MetricRows
from headrace.services.orchestrator.dashboard.whole_status import run_identity, whole_status
from headrace.wire.api.fleet import PublicationTimeline
from headrace.wire.api.model import Metrics
from headrace.wire.api.status import (
    Bottleneck,
    Credit,
    GroupCounts,
    OperatorStatus,
    RunProgress,
    RunStatus,
    TrainerStatus,
)
from headrace.wire.config.kept import kept_tables
from headrace.wire.rundir.events import seems_alive, state_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import TIME


def table_of(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The table of this name; empty if there is none."""
    found = tables.get(name)
    return found if isinstance(found, dict) else {}


class EndedRun:
    """Implements `RunSource` on the run's files, which the board keeps current."""

    def __init__(self, files: Files) -> None:
        """Raises ConfigError if the folder is not a run directory."""
        self._files = files
        self._run = table_of(kept_tables(files.run_dir), "run")
        self._averaged: tuple[MetricRows | None, Metrics] = (None, {})
        self._state = "stopped"
        self._groups = _groups(RunPaths(files.run_dir).state)

    def status(self) -> RunStatus:
        """Implements `RunSource.status`: no credit limit, no publication and no operator requests."""
        last = self._last()
        step = int(last["step"])
        state = self._look_at_state()
        is_running = state == "running"  # A stage without an orchestrator, which has no page of its own.
        progress = RunProgress(
            state=state,
            reason="",
            step=step,
            max_steps=self._max_steps(step),
            version=step,
            incarnation=int(last.get("incarnation", 0)),
            eval=self._files.evals.all,
            evaluating="",
            waiting_for="",
            credit=Credit(issued=self._groups.open, limit=0),
            groups=self._groups,
            trainer=TrainerStatus(
                state="finished" if state == "finished" else "absent",
                waiting_for="",
                waiting_share=float(last.get("wait_batch_share", 0.0)),
                metrics=last,
            ),
            replicas=(),
            streams={},
            publication=None,
        )
        run_id = str(self._run.get("id", "run"))
        run = run_identity(
            self._files.run_dir, run_id, self._files.log.began, ended=None if is_running else self._ended(last)
        )
        operator = OperatorStatus(paused=False, stopping=False, checkpoint_asked=False, draining=())
        averages = {} if is_running else self._averages()
        whole = whole_status(progress, run, operator, self._files.curves.rows, averages)
        if is_running:
            # The sides are not known: to start one would be wrong advice.
            return whole.model_copy(update={"bottleneck": Bottleneck(side="none", text="The run is running.")})
        return whole

    def publications(self) -> tuple[PublicationTimeline, ...]:
        """Implements `RunSource.publications` from the event logs."""
        return self._files.log.publications

    def _look_at_state(self) -> str:
        """The state from the files; the last known one while they cannot be read."""
        run_dir = self._files.run_dir
        with contextlib.suppress(OSError):
            self._state = state_of(run_dir, alive=seems_alive(run_dir, time.time()))
        return self._state

    def _last(self) -> Metrics:
        rows = self._files.curves.rows
        return rows.row(len(rows) - 1) if len(rows) else {"step": 0}

    def _max_steps(self, otherwise: int) -> int:
        found = self._run.get("max_steps")
        return found if type(found) is int else otherwise

    def _ended(self, last: Metrics) -> float | None:
        """Unix seconds of the newest event or step."""
        times = [one.t for one in self._files.log.newest(1)] + ([float(last[TIME])] if TIME in last else [])
        return max(times, default=None)

    def _averages(self) -> Metrics:
        rows = self._files.curves.rows
        if self._averaged[0] is not rows:
            known = {name: column[~np.isnan(column)] for name, column in rows.columns.items()}
            self._averaged = rows, {name: float(values.mean()) for name, values in known.items() if len(values)}
        return self._averaged[1]


def _groups(path: Path) -> GroupCounts:
    """Group counts in the form of the live status; zeros if the database is missing or damaged."""
    query = (
        "SELECT CASE WHEN step IS NULL THEN 'open' WHEN step > 0 THEN 'trained' ELSE reason END, COUNT(*) "
        "FROM groups GROUP BY 1"
    )
    counts: dict[str, int] = {}
    if path.is_file():
        # Without a WAL to read, SQLite would create one even in read-only mode: viewing must not change the run.
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as db,
        ):
            counts = {str(fate): int(count) for fate, count in db.execute(query)}
    trained, num_open = counts.pop("trained", 0), counts.pop("open", 0)
    issued = trained + num_open + sum(counts.values())
    return GroupCounts(issued=issued, trained=trained, dropped=counts, open=num_open)
