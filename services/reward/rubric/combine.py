"""Several scorers' values make one score. Pure.

Where a member abstains, the whole abstains: a sum without one of its terms is another reward. Exceptions are members
that are `optional`, and ensembles (`mean`, `median`), which go by those that scored while they are a quorum.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.services.reward.settings import CombinationTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """One member of a rubric and its value."""

    name: str
    value: float | None
    """None = it abstained."""
    weight: float = 1.0
    at_least: float | None = None
    optional: bool = False


def problem(table: CombinationTable, parts: Sequence[MemberValue]) -> str | None:
    """Why these members (their values are not looked at) cannot be combined so; None = they can."""
    kind = table.combination
    gates = [part for part in parts if part.at_least is not None]
    if kind == "gate" and (not gates or len(gates) == len(parts)):
        return "combination = 'gate' needs scorers with `at_least` (the gates) and others (the score)"
    if kind != "gate" and gates:
        return f"`at_least` of {gates[0].name} needs combination = 'gate', not {kind!r}"
    if kind in ("product", "min", "median") and any(part.weight != 1.0 for part in parts):
        return f"combination = {kind!r} knows no weights: leave them at 1"
    if kind in ("mean", "median") and any(part.optional for part in parts):
        return f"combination = {kind!r} goes by those that scored (see `quorum`): `optional` changes nothing there"
    if any(part.weight != 1.0 for part in gates):
        return f"{gates[0].name} is a gate: its weight counts nowhere"
    if table.gate_value and kind != "gate":
        return f"gate_value needs combination = 'gate', not {kind!r}"
    if table.quorum != CombinationTable().quorum and kind not in ("mean", "median"):
        return f"quorum needs combination = 'mean' or 'median', not {kind!r}"
    if kind == "mean" and (any(part.weight < 0 for part in parts) or not sum(part.weight for part in parts) > 0):
        return "combination = 'mean' needs weights of 0 or more, not all of them 0"
    return None


def _is_shut(part: MemberValue) -> bool:
    return part.at_least is not None and part.value is not None and part.value < part.at_least


def combine(table: CombinationTable, parts: Sequence[MemberValue]) -> float | None:
    """The score; None where it abstains. `problem(table, parts)` is None."""
    scored = [part for part in parts if part.value is not None]
    if table.combination == "gate" and any(_is_shut(part) for part in parts):
        return table.gate_value
    if table.combination in ("mean", "median"):
        if len(scored) <= table.quorum * len(parts):
            return None
    elif not scored or any(part.value is None and not part.optional for part in parts):
        return None
    return _COMBINE[table.combination](table, [(part, part.value) for part in scored if part.value is not None])


def member_weights(table: CombinationTable, parts: Sequence[MemberValue]) -> list[float]:
    """How much of each member's value, and of its token scores, goes into the whole.

    Of `min` the worst member's alone; none behind a closed gate; `median` and `product` have no such share: none.
    """
    kind, none = table.combination, [0.0] * len(parts)
    scored = [part for part in parts if part.value is not None]
    if not scored or kind in ("median", "product") or (kind == "gate" and any(_is_shut(part) for part in parts)):
        return none
    if kind == "min":
        worst = min(range(len(parts)), key=lambda number: _or_infinity(parts[number].value))
        return [float(number == worst) for number in range(len(parts))]
    share = math.fsum(part.weight for part in scored) if kind == "mean" else 1.0
    if not share:
        return none
    return [part.weight / share if part.value is not None and part.at_least is None else 0.0 for part in parts]


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


_Values = Sequence[tuple[MemberValue, float]]


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
