"""Inter-annotator agreement. Pure.

A unit is one pair of completions, represented by the verdicts on it; which annotator gave which is irrelevant.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations


def percent_agreement(units: Iterable[Sequence[str]]) -> float | None:
    """Share of annotator pairs with equal verdicts, over all units; None if no unit was judged twice."""
    agreed = total = 0
    for verdicts in units:
        for one, other in combinations(verdicts, 2):
            agreed += one == other
            total += 1
    return agreed / total if total else None


def krippendorff_alpha(units: Iterable[Sequence[str]]) -> float | None:
    """Krippendorff's alpha for nominal data, with missing verdicts: 1 = perfect, 0 = chance level, below 0 = worse.

    None if no unit was judged twice, or if all verdicts are the same: then no disagreement is possible.
    Source: K. Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section D.
    """
    pairable = [Counter(verdicts) for verdicts in units if len(verdicts) > 1]
    totals = sum(pairable, Counter[str]())
    count = totals.total()
    expected = count * count - sum(number * number for number in totals.values())
    if not expected:
        return None
    observed = 0.0
    for unit in pairable:
        size = unit.total()
        observed += (size * size - sum(number * number for number in unit.values())) / (size - 1)
    return 1.0 - (count - 1) * observed / expected
