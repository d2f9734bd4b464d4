"""Parses lines of `metrics.jsonl` into columns. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import json as pa_json

from headrace.wire.api.model import Metrics
from headrace.wire.rundir.jsonl import Record, records
from headrace.wire.rundir.metrics import STEP

Column = NDArray[np.float64]

_MOST_STEP = 2**53
_LARGEST = 1e300
"""Largest magnitude that is drawn: the difference of two such numbers still fits in a double."""
_FAST_FROM = 256 * 1024
"""Bytes from which pyarrow's reader, which releases the GIL, is worth its start-up cost."""


@dataclass(frozen=True, slots=True)
class MetricRows:
    """Rows by increasing step: one column of doubles per metric, NaN where a row has no value."""

    steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    columns: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def row(self, position: int) -> Metrics:
        """One row, without missing values."""
        values = {name: float(column[position]) for name, column in self.columns.items()}
        return {STEP: int(self.steps[position]), **{name: value for name, value in values.items() if value == value}}


def parse_rows(data: bytes) -> MetricRows:
    """Parses whole lines; of several lines for a step the last counts. Damaged lines are skipped."""
    if len(data) >= _FAST_FROM:
        try:
            rows = _of_table(_read_table(data))
        except pa.ArrowInvalid:
            rows = None
        if rows is not None:
            return rows  # Otherwise a bad line made that reader fail on all of them.
    return _of_records(_records(data))


def _read_table(data: bytes) -> pa.Table:
    options = pa_json.ReadOptions(block_size=1024 * 1024, use_threads=True)
    return pa_json.read_json(BytesIO(data), read_options=options)


def _of_table(table: pa.Table) -> MetricRows | None:
    """Converts the table; None if there is no integer `step` column."""
    if STEP not in table.column_names or not pa.types.is_integer(table.schema.field(STEP).type):
        return None
    table = table.filter(table.column(STEP).is_valid())
    columns = {
        name: _doubles(table.column(name))
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if name != STEP and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
    }
    return in_order(MetricRows(table.column(STEP).to_numpy().astype(np.int64), columns))


def _doubles(column: pa.ChunkedArray) -> Column:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return _finite(np.array(column.cast(pa.float64(), safe=False).to_numpy(), np.float64))


def _finite(column: Column) -> Column:
    column[np.abs(column) > _LARGEST] = np.nan
    return column


def _records(data: bytes) -> Iterable[tuple[int, Record]]:
    for record in records(data):
        step = record.get(STEP)
        if type(step) is int and abs(step) <= _MOST_STEP:
            yield step, record


def _of_records(found: Iterable[tuple[int, Record]]) -> MetricRows:
    kept = list(found)
    columns: dict[str, Column] = {}
    for position, (_, record) in enumerate(kept):
        for name, value in record.items():
            if name != STEP and isinstance(value, int | float):
                column = columns.setdefault(name, np.full(len(kept), np.nan))
                column[position] = value if abs(value) <= _LARGEST else np.nan
    return in_order(MetricRows(np.array([step for step, _ in kept], np.int64), columns))


def in_order(rows: MetricRows) -> MetricRows:
    """The same rows by increasing step, keeping the last row of each step."""
    steps = rows.steps
    if bool(np.all(steps[1:] > steps[:-1])):
        return rows
    order = np.argsort(steps, kind="stable")
    risen = steps[order]
    order = order[np.append(risen[1:] != risen[:-1], True)]
    return MetricRows(steps[order], {name: column[order] for name, column in rows.columns.items()})
