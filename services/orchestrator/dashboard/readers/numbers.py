"""Parses lines of `metrics.jsonl` into columns. Pure."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from headrace.wire.api.model import Metrics
from headrace.wire.rundir.jsonl import records
from headrace.wire.rundir.metrics import STEP

Column = NDArray[np.float64]
TRAINED_TOTAL = "trained_tokens_total"
"""Tokens that entered the losses of a step and of all steps before it; the file has those of each step."""


@dataclass(frozen=True, slots=True)
class MetricRows:
    """Rows by increasing step: one column of doubles per metric, NaN where a row has no value."""

    steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    columns: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def column(self, name: str) -> Column | None:
        """A metric, or the running sum of the trained tokens; None if the run has no such number."""
        if name == TRAINED_TOTAL and "trained_tokens" in self.columns:
            return np.nancumsum(self.columns["trained_tokens"])
        return self.columns.get(name)

    def row(self, position: int) -> Metrics:
        """One row, without missing values."""
        values = {name: float(column[position]) for name, column in self.columns.items()}
        return {STEP: int(self.steps[position]), **{name: value for name, value in values.items() if value == value}}


def parse_rows(data: bytes) -> MetricRows:
    """Parses whole lines; of several lines for a step the last counts. Lines without a step are skipped."""
    kept = [record for record in records(data) if type(record.get(STEP)) is int]
    names = {name for record in kept for name, value in record.items() if isinstance(value, int | float)} - {STEP}
    columns = {name: np.array([_double(record.get(name)) for record in kept]) for name in sorted(names)}
    return _in_order(MetricRows(np.array([record[STEP] for record in kept], np.int64), columns))


def _double(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


def joined(known: MetricRows, added: MetricRows) -> MetricRows:
    """Rows of both; of two rows of a step, the later one."""
    names = sorted(known.columns.keys() | added.columns.keys())
    return _in_order(
        MetricRows(
            np.concatenate((known.steps, added.steps)),
            {name: np.concatenate((_column(known, name), _column(added, name))) for name in names},
        )
    )


def _column(rows: MetricRows, name: str) -> Column:
    found = rows.columns.get(name)
    return np.full(len(rows), np.nan) if found is None else found


def _in_order(rows: MetricRows) -> MetricRows:
    """The same rows by increasing step, keeping the last row of each step."""
    steps = rows.steps
    if bool(np.all(steps[1:] > steps[:-1])):
        return rows
    order = np.argsort(steps, kind="stable")
    risen = steps[order]
    order = order[np.append(risen[1:] != risen[:-1], True)]
    return MetricRows(steps[order], {name: column[order] for name, column in rows.columns.items()})
