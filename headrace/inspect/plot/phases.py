"""Seconds of each step by phase, as stacked curves. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

KEY = "phase_seconds_"
_OTHER = "other"
_OWN = 5
"""Number of phases with a band of their own; the smaller ones are part of `other`."""


def phase_seconds(steps: Sequence[Mapping[str, object]]) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Steps that report phases, and seconds of each phase by its name, the largest first and the rest last.

    Axes: step. Both are empty for a run that reports none.
    """
    recorded = [row for row in steps if any(key.startswith(KEY) for key in row)]
    names = sorted({key.removeprefix(KEY) for row in recorded for key in row if key.startswith(KEY)})
    x = np.array([row["step"] for row in recorded], np.float64)
    # A phase that a step did not have took no time.
    all_seconds = {name: np.array([_number(row.get(KEY + name)) for row in recorded]) for name in names}
    by_size = sorted((name for name in names if name != _OTHER), key=lambda name: -float(all_seconds[name].sum()))
    found = {name.replace("_", " "): all_seconds[name] for name in by_size[:_OWN]}
    rest = [all_seconds[name] for name in (*by_size[_OWN:], _OTHER) if name in all_seconds]
    return x, found | ({_OTHER: np.sum(rest, axis=0)} if rest else {})


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else 0.0
