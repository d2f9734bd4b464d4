"""How long a step takes, and the steps that are left: from the run's own metrics. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import JsonValue

from headrace.wire.rundir.jsonl import number_of

PACE_STEPS = 21
"""Steps whose median time is that of a step: evaluations and pauses between two of them do not move it."""
_UNITS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def step_seconds(rows: Sequence[Mapping[str, JsonValue]]) -> float | None:
    """Median of the seconds between the ends of these steps, oldest first; None for fewer than two."""
    ends = [end for row in rows if (end := number_of(row.get("t"))) is not None]
    return statistics.median(late - early for early, late in pairwise(ends)) if len(ends) > 1 else None


def in_time(seconds: float) -> str:
    """Formats a time for people in its largest unit, such as `40 s`, `4 min`."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= 1.5 * size or unit == "s")
    return f"{max(1, round(seconds / size))} {unit}"
