"""Rollouts as text for other programs: CSV, or JSON lines. Pure."""

import csv
import io
from collections.abc import Sequence

from headrace.wire.api.rollouts import RolloutRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_text(kind: str, rows: Sequence[RolloutRow], *, head: bool) -> str:
    """The rows as `csv`, with or without the names, or else as JSON lines."""
    return as_csv(rows, head=head) if kind == "csv" else as_lines(rows)


def as_lines(rows: Sequence[RolloutRow]) -> str:
    """One JSON object a line."""
    return "".join(row.model_dump_json() + "\n" for row in rows)


def as_csv(rows: Sequence[RolloutRow], *, head: bool) -> str:
    """One record a row, with `head` after that of the names; what a spreadsheet would run gets a quote before it."""
    text = io.StringIO()
    out = csv.writer(text)
    if head:
        out.writerow(RolloutRow.model_fields)
    out.writerows([_cell(value) for value in row.model_dump().values()] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
