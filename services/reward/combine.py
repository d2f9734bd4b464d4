"""Several scorers' values make one score. Pure.

Where a member abstains, the whole abstains: a sum without one of its terms is another reward. Exceptions are members
that are `optional`, and ensembles (`mean`, `median`), which go by those that scored while they are a quorum.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from services.reward.settings import CombinationTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One member and what it said."""

    name: str
    value: float | None
    """None = it abstained."""
    weight: float = 1.0
    at_least: float | None = None
    optional: bool = False


def problem(table: CombinationTable, parts: Sequence[Part]) -> str | None:
    """Why these members (their values are not looked at) cannot be combined so; None = they can."""
    kind = table.combination
    gates = [part for part in parts if part.at_least is not None]
    if kind == "gate" and (not gates or len(gates) == len(parts)):
        return "combination = 'gate' needs scorers with `at_least` (the gates) and others (the score)"
    if kind != "gate" and gates:
        return f"`at_least` of {gates[0].name} needs combination = 'gate', not {kind!r}"
    if kind in ("product", "min", "median") and any(part.weight != 1.0 for part in parts):
        return f"combination = {kind!r} knows no weights: leave them at 1"
    if kind == "mean" and (any(part.weight < 0 for part in parts) or not sum(part.weight for part in parts) > 0):
        return "combination = 'mean' needs weights of 0 or more, not all of them 0"
    return None


def combine(table: CombinationTable, parts: Sequence[Part]) -> float | None:
    """The score; None where it abstains. `problem(table, parts)` is None."""
    scored = [part for part in parts if part.value is not None]
    if table.combination in ("mean", "median"):
        if len(scored) <= table.quorum * len(parts):
            return None
    elif not scored or any(part.value is None and not part.optional for part in parts):
        return None
    return _COMBINE[table.combination](table, [(part, part.value) for part in scored if part.value is not None])


_Values = Sequence[tuple[Part, float]]


def _weighted_sum(_table: CombinationTable, scored: _Values) -> float | None:
    return math.fsum(part.weight * value for part, value in scored)


def _mean(_table: CombinationTable, scored: _Values) -> float | None:
    weight = math.fsum(part.weight for part, _ in scored)
    return math.fsum(part.weight * value for part, value in scored) / weight if weight else None


def _median(_table: CombinationTable, scored: _Values) -> float | None:
    return statistics.median(value for _, value in scored)


def _product(_table: CombinationTable, scored: _Values) -> float | None:
    return math.prod(value for _, value in scored)


def _min(_table: CombinationTable, scored: _Values) -> float | None:
    return min(value for _, value in scored)


def _gate(table: CombinationTable, scored: _Values) -> float | None:
    if any(part.at_least is not None and value < part.at_least for part, value in scored):
        return table.gate_value
    behind = [(part, value) for part, value in scored if part.at_least is None]
    return _weighted_sum(table, behind) if behind else None


_COMBINE = {
    "weighted_sum": _weighted_sum,
    "mean": _mean,
    "median": _median,
    "product": _product,
    "min": _min,
    "gate": _gate,
}
