"""How long a step takes, and the steps that are left: from the run's own metrics. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import JsonValue

from headrace.inspect.waits import duration
from headrace.wire.rundir.jsonl import number_of

PACE_STEPS = 21
"""Steps whose median time is that of a step: evaluations and pauses between two of them do not move it."""


def step_seconds(rows: Sequence[Mapping[str, JsonValue]]) -> float | None:
    """Median of the seconds between the ends of these steps, oldest first; None for fewer than two."""
    ends = [end for row in rows if (end := number_of(row.get("t"))) is not None]
    return statistics.median(late - early for early, late in pairwise(ends)) if len(ends) > 1 else None


def in_time(seconds: float) -> str:
    """Formats the time that is left, in minutes from 90 s on."""
    return f"{seconds / 60:.0f} min" if 90 <= seconds < 300 else duration(seconds)
