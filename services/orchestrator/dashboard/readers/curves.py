"""The metrics of every step, as columns that grow with `RUN/metrics.jsonl`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from headrace.services.orchestrator.dashboard.readers.numbers import MetricRows, joined, parse_rows
from headrace.wire.process.lifecycle import wait_for
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
        self._tail = Tail(path)
        self.rows = MetricRows()

    async def look(self) -> Fresh | None:
        """Reads the next chunk of the file on a thread; None when there is nothing new."""
        fresh, self.rows = await wait_for(asyncio.to_thread(self._read), _READ_S, "metrics.jsonl to be read")
        return fresh

    def _read(self) -> tuple[Fresh | None, MetricRows]:
        added = self._tail.read()
        rows = parse_rows(added.data)
        if not len(rows) and not added.anew:
            return None, self.rows
        known = MetricRows() if added.anew else self.rows
        repeated = bool(len(known) and len(rows) and rows.steps[0] <= known.steps[-1])
        return Fresh(rows, added.anew or repeated), joined(known, rows)
