"""Ranks quantities by how far a step lies from the steps before it. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.wire.api.why import MovedRow
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.telemetry.metric_table import component_means, metric_of

FEWEST, MOST = 4, 12
"""Steps before that a comparison needs, and takes."""
SHARE = "share_of_rollouts"
"""The measure that a part itself has."""
_CLEAR = 4.0
"""A fall, in standard deviations, that a run without a fault seldom has."""
_LEAST = {"share": 0.01, "versions": 0.5}
"""Unit -> standard deviation below which no difference is told."""


class Quantity(NamedTuple):
    """What is compared; the fields of a `MovedRow`."""

    measure: str
    column: str = ""
    label: str = ""


class Reading(NamedTuple):
    """A quantity in one step."""

    value: float
    variance: float = 0.0
    """Of the groups' means; 0 for a number of the whole step."""
    groups: int = 1
    """Groups that it was taken from."""


def ranked(readings: Mapping[int, Mapping[Quantity, Reading]], step: int) -> list[MovedRow]:
    """Rows without examples, the largest first: of what `step` and `FEWEST` steps before it have.

    A part is left out where all rollouts together moved more: it moved with them.
    """
    found = [
        row
        for quantity in readings[step]
        if (row := _row(quantity, {at: own[quantity] for at, own in readings.items() if quantity in own}, step))
    ]
    whole = {row.measure: row.size for row in found if not row.column}
    kept = [row for row in found if not row.column or row.size > whole.get(row.measure, 0)]
    return sorted(kept, key=lambda row: -row.size)


def _row(quantity: Quantity, steps: Mapping[int, Reading], step: int) -> MovedRow | None:
    order = sorted(steps)
    values = np.array([steps[at].value for at in order], np.float64)
    place, now = order.index(step), steps[step].value
    if place < FEWEST:
        return None
    # Steps beside this one that lie on its side moved with it, unless too few would be left to compare with.
    off = values - np.median(values[max(0, place - MOST) : place])
    usual = 6 * float(np.median(np.abs(off[max(0, place - MOST) : place])))
    moved_by = abs(float(off[place]))
    alike = off * np.sign(off[place]) > min(moved_by / 2, max(usual, moved_by / 8))
    past, end = place, place + 1
    while past > FEWEST and alike[past - 1]:
        past -= 1
    while end < len(values) and alike[end]:
        end += 1
    known, moved = slice(max(0, past - MOST), past), slice(past, end)
    expected, spread = _expected(values[known], (end - past + 1) / 2, end - past)
    groups = sum(steps[at].groups for at in order[moved])
    variance = max(float(np.mean([steps[at].variance for at in order[part]])) for part in (known, moved))
    before = float(values[known].mean())
    distance = abs(float(values[moved].mean()) - expected)
    scale = max(spread**2, variance / groups, least_deviation(quantity.measure, before) ** 2)
    # Where nothing varied, this is all that so many observations can tell.
    limit = distance**2 / (groups * (past + 2))
    size = distance / (scale + limit) ** 0.5 if distance else 0.0
    unit = unit_of(quantity.measure)
    return MovedRow(**quantity._asdict(), unit=unit, before=before, now=now, size=size, since=order[past])


def _expected(values: NDArray[np.float64], ahead: float, count: int) -> tuple[float, float]:
    """The mean of the next `count` values, `ahead` of the last one, and its deviation: by level or line, as fits."""
    known = len(values)
    places = np.arange(known) - (known - 1) / 2
    level, spread = float(values.mean()), float(values.std(ddof=1)) * (1 / count + 1 / known) ** 0.5
    slope, squares = float(places @ values / (places @ places)), float(places @ places)
    rest = float(((values - level - slope * places) ** 2).sum() / (known - 2)) ** 0.5
    off = places[-1] + ahead
    of_line = max(rest * (1 / count + 1 / known + off**2 / squares) ** 0.5, abs(slope))
    few = ((known - 1) / (known - 3)) ** 0.5  # Student's t is wider than the normal distribution.
    return (level + slope * off, few * of_line) if of_line < spread else (level, few * spread)


def unit_of(measure: str) -> str:
    """As in the table of metrics."""
    found = metric_of(measure)
    is_share = measure == SHARE or measure.endswith(("_share", "/abstained"))
    return "share" if is_share else found.unit if found else ""


def least_deviation(measure: str, before: float) -> float:
    """Standard deviation below which no difference is told: a count's is at least its square root."""
    unit = unit_of(measure)
    count = max(1.0, before) ** 0.5 if unit in ("groups", "rollouts") else 0.02 * abs(before)
    return _LEAST.get(unit, count)


def largest_fall(lines: Mapping[int, Mapping[str, object]]) -> tuple[int, str] | None:
    """The step, and the reward or component, whose 4 steps from there on lie lowest below the 8 before.

    None if nothing fell clearly.
    """
    found: tuple[float, int, str] = (_CLEAR, 0, "")
    largest = max((abs(number_of(line.get("reward_mean")) or 0.0) for line in lines.values()), default=0.0)
    for name in {"reward_mean", *(f"rewards/{name}/mean" for line in lines.values() for name in component_means(line))}:
        pairs = [(step, number) for step in sorted(lines) if (number := number_of(lines[step].get(name))) is not None]
        values = np.array([number for _, number in pairs], np.float64)
        for place in range(FEWEST, len(values)):
            was, now = values[max(0, place - 8) : place], values[place : place + 4]
            squares = float(((was - was.mean()) ** 2).sum() + ((now - now.mean()) ** 2).sum())
            noise = squares / (len(was) + len(now) - 2) * (1 / len(was) + 1 / len(now))
            least = max(least_deviation(name, was.mean()), 0.02 * largest)
            fall = float(was.mean() - now.mean()) / max(noise + least**2, 1e-12) ** 0.5
            found = max(found, (fall, pairs[place][0], name))
    return found[1:] if found[2] else None
