"""The metrics of every step, as columns on disk that grow with `RUN/metrics.jsonl`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.services.orchestrator.dashboard.readers.columns import DiskColumns
from headrace.services.orchestrator.dashboard.readers.numbers import Column, MetricRows, in_order, parse_rows
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.metrics import STEP
from headrace.wire.rundir.tail import Tail

_READ_S = 120.0


@dataclass(frozen=True, slots=True)
class Fresh:
    """Result of a poll: rows to append, or (`anew`) rows that replace known ones."""

    rows: MetricRows
    anew: bool


class Curves:
    """Changed on the event loop only; `rows` is a snapshot that may be read on any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    async def look(self) -> Fresh | None:
        """Reads the next chunk of the file on a thread; None when there is nothing new.

        Raises OSError if no temporary file can hold the columns; the next call then reads the file from its beginning.
        """
        anew, rows = await wait_for(asyncio.to_thread(self._read), _READ_S, "metrics.jsonl to be read")
        if not len(rows) and not anew:
            return None
        try:
            anew = self._add(rows, anew=anew)
        except OSError:
            self._forget()
            raise
        return Fresh(rows, anew)

    def _forget(self) -> None:
        self._tail = Tail(self._path)
        self._columns = DiskColumns({STEP: np.int64})
        self.rows = MetricRows()

    def _read(self) -> tuple[bool, MetricRows]:
        added = self._tail.read()
        return added.anew, parse_rows(added.data) if added.data else MetricRows()

    def _add(self, rows: MetricRows, *, anew: bool) -> bool:
        """Adds the rows; returns whether known ones were replaced."""
        known = MetricRows() if anew else self.rows
        repeated = bool(len(known) and len(rows) and rows.steps[0] <= known.steps[-1])
        names = sorted(known.columns.keys() | rows.columns.keys())
        if anew or repeated or names != [*known.columns]:
            rows = in_order(_joined(known, rows))
            self._columns = DiskColumns({STEP: np.int64, **dict.fromkeys(names, np.float64)})
        self._columns.append({STEP: rows.steps, **{name: _column(rows, name) for name in names}})
        view = self._columns.view()
        self.rows = MetricRows(view.pop(STEP), view)
        return anew or repeated


def _joined(known: MetricRows, added: MetricRows) -> MetricRows:
    """Rows of both; of two rows of a step, `in_order` keeps the later one."""
    names = known.columns.keys() | added.columns.keys()
    return MetricRows(
        np.concatenate((known.steps, added.steps)),
        {name: np.concatenate((_column(known, name), _column(added, name))) for name in names},
    )


def _column(rows: MetricRows, name: str) -> Column:
    found = rows.columns.get(name)
    return np.full(len(rows), np.nan) if found is None else found
