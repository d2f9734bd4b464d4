"""The metrics of every step, held as columns that grow with `RUN/metrics.jsonl`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.services.orchestrator.dashboard.readers.numbers import Column, MetricRows, in_order, parse_rows
from headrace.wire.lifecycle import wait_for
from headrace.wire.rundir.tail import Tail

N = TypeVar("N", bound=np.generic)

_ROOM = 256
_READ_S = 120.0


@dataclass(frozen=True, slots=True)
class Fresh:
    """Result of a poll: rows to append, or (`anew`) rows that replace known ones."""

    rows: MetricRows
    anew: bool


class Curves:
    """Changed on the event loop only; `rows` is a snapshot that may be read on any thread."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._steps = np.empty(0, np.int64)
        self._columns: dict[str, Column] = {}
        self._count = 0
        self.rows = MetricRows()

    async def look(self) -> Fresh | None:
        """Reads the next chunk of the file on a thread; None when there is nothing new."""
        anew, rows = await wait_for(asyncio.to_thread(self._read), _READ_S, "metrics.jsonl to be read")
        if not len(rows) and not anew:
            return None
        if anew:
            self._replace(MetricRows())
        if self._count and len(rows) and rows.steps[0] <= self._steps[self._count - 1]:
            self._replace(_merged(self.rows, rows))
            anew = True
        else:
            self._append(rows)
        self.rows = self._view()
        return Fresh(rows, anew)

    def _read(self) -> tuple[bool, MetricRows]:
        added = self._tail.read()
        return added.anew, parse_rows(added.data) if added.data else MetricRows()

    def _append(self, rows: MetricRows) -> None:
        before, self._count = self._count, self._count + len(rows)
        self._steps = _with_room(self._steps, self._count, 0)
        self._steps[before : self._count] = rows.steps
        for name in self._columns.keys() | rows.columns.keys():
            column = self._columns.get(name)
            if column is None:
                column = np.full(len(self._steps), np.nan)
            # Spare capacity is filled with NaN, so rows without this metric need no write.
            column = self._columns[name] = _with_room(column, len(self._steps), np.nan)
            if name in rows.columns:
                column[before : self._count] = rows.columns[name]

    def _replace(self, rows: MetricRows) -> None:
        """Replaces all rows, in new arrays: snapshots in use elsewhere stay unchanged."""
        self._steps, self._columns, self._count = rows.steps.copy(), dict(rows.columns), len(rows)

    def _view(self) -> MetricRows:
        count = self._count
        return MetricRows(self._steps[:count], {name: column[:count] for name, column in sorted(self._columns.items())})


def _with_room(array: NDArray[N], count: int, fill: float) -> NDArray[N]:
    """The same array, or a larger copy, with room for `count` values."""
    if len(array) >= count:
        return array
    larger = np.full(max(count, len(array) * 3 // 2, _ROOM), fill, array.dtype)
    larger[: len(array)] = array
    return larger


def _merged(known: MetricRows, told: MetricRows) -> MetricRows:
    """Rows of both; if a step occurs twice, the later row wins."""
    names = known.columns.keys() | told.columns.keys()
    return in_order(
        MetricRows(
            np.concatenate((known.steps, told.steps)),
            {name: np.concatenate((_column(known, name), _column(told, name))) for name in names},
        )
    )


def _column(rows: MetricRows, name: str) -> Column:
    found = rows.columns.get(name)
    return np.full(len(rows), np.nan) if found is None else found
