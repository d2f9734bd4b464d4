"""Micro-batches with little padding: rows sorted by length, cut where padding would cost the most."""

import bisect
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def micro_batches(
    lengths: Sequence[int], *, token_budget: int, overhead_tokens: int = 32, parts: Sequence[int] = ()
) -> list[list[int]]:
    """Partitions rows into micro-batches, longest rows first; returns row numbers.

    Rows times the longest row of a micro-batch stay within `token_budget` (a longer row is alone). Among the cuts of
    the sorted rows it takes the one with the fewest padded tokens, adding `overhead_tokens` for each micro-batch: its
    fixed cost in tokens. Depends on the lengths and their order only.

    `parts`, one number a row, is given where a row stands for several that stay together: `lengths` are then those of
    the longest of them.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    before = [0, *itertools.accumulate(parts[row] if parts else 1 for row in order)]
    count = len(order)
    # A row at a time, but all cuts after it at once: thousands of short rows fit one micro-batch.
    rows, least = np.array(before), np.zeros(count + 1, np.int64)
    end_of = [count] * count
    for start in range(count - 1, -1, -1):
        longest = max(lengths[order[start]], 1)
        last = bisect.bisect_right(before, before[start] + token_budget // longest) - 1
        ends = slice(start + 1, max(last, start + 1) + 1)
        costs = longest * (rows[ends] - before[start]) + least[ends]
        # Of equal costs the farthest end.
        found = len(costs) - 1 - int(costs[::-1].argmin())
        least[start], end_of[start] = costs[found] + overhead_tokens, start + 1 + found
    batches = []
    start = 0
    while start < count:
        batches.append(order[start : end_of[start]])
        start = end_of[start]
    return batches


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's micro-batch in one round of forward and backward passes."""

    rows: tuple[int, ...]
    counts: bool = True
    """False: a dummy, because every rank must run every pass; its loss is multiplied by 0."""


def shared_micro_batches(
    lengths: Sequence[int], *, ranks: int, token_budget: int, overhead_tokens: int = 32, parts: Sequence[int] = ()
) -> list[list[Share]]:
    """The micro-batches of each rank: equally many, so that all run the same passes. Each row counts once.

    Those of `micro_batches`; the costliest are halved until their number is a multiple of `ranks`; once all rows are
    alone, dummies of the shortest row fill up. Ranks wait for each other in every round, so the micro-batches of a
    round have similar costs. For one rank they are those of `micro_batches`.
    """
    cost = functools.partial(_cost, lengths=lengths, parts=parts)
    batches = micro_batches(lengths, token_budget=token_budget, overhead_tokens=overhead_tokens, parts=parts)
    while len(batches) % ranks and any(len(batch) > 1 for batch in batches):
        widest = max((batch for batch in batches if len(batch) > 1), key=cost)
        place = batches.index(widest)
        middle = len(widest) // 2
        batches[place : place + 1] = [widest[:middle], widest[middle:]]
    shares = [Share(tuple(batch)) for batch in batches]
    if ranks > 1:
        shares.sort(key=lambda share: -cost(share.rows))
        shortest = min(range(len(lengths)), key=lambda row: cost([row]), default=0)
        shares += [Share((shortest,), counts=False)] * (-len(shares) % ranks)
    return [shares[rank::ranks] for rank in range(ranks)]


def _cost(rows: Sequence[int], *, lengths: Sequence[int], parts: Sequence[int]) -> int:
    count = sum(parts[row] for row in rows) if parts else len(rows)
    return count * max(lengths[row] for row in rows)
