"""How a number grows with the steps of a run: a slope with its 95% interval. Pure.

`growth` judges; `drift` shows whether a count that grew, such as descriptors, changed a few times or again and again.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
"""Quantile of Student's t for 1, 2, ... degrees of freedom; 2.09 down to 1.96 beyond."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth per 1,000 steps."""

    slope: float
    half_width: float
    """Half of the 95% interval."""

    def exceeds(self, limit: float) -> bool:
        """Whether the whole interval is above the limit."""
        return self.slope - self.half_width > limit


def growth(
    samples: Sequence[tuple[float, float]], blocks: int = 20, middle: Callable[[list[float]], float] = statistics.fmean
) -> Growth:
    """The growth of `samples`, pairs (step, value) in order, through one value for each of so many blocks.

    Neighbouring samples depend on each other, means of long blocks hardly do. Give `min` as `middle` for a count:
    what is open for a moment is in some samples by chance, what is kept is in the least of each block from then on.
    Raises ValueError for less than three blocks of distinct steps.
    """
    xs, ys = _blocks(samples, blocks, middle)
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    free = len(xs) - 2
    return Growth(slope, _quantile(free) * math.sqrt(rest / free / spread))


def drift(samples: Sequence[tuple[float, float]], blocks: int = 20) -> Growth:
    """The growth of a count, by how much it changes from one block to the next (medians of the blocks).

    A line through a count that changed once has a narrow interval, for its samples are no scatter around it. Here the
    changes are what scatters: a pool that opens one more connection has no drift, a leak has. Raises ValueError as
    `growth`.
    """
    xs, ys = _blocks(samples, blocks, statistics.median)
    changes = [after - before for before, after in itertools.pairwise(ys)]
    length = (xs[-1] - xs[0]) / len(changes)
    error = statistics.stdev(changes) / math.sqrt(len(changes))
    return Growth(statistics.fmean(changes) / length, _quantile(len(changes) - 1) * error / length)


def _blocks(
    samples: Sequence[tuple[float, float]], blocks: int, middle: Callable[[list[float]], float]
) -> tuple[list[float], list[float]]:
    """Thousands of steps and middle values of so many blocks of equal length."""
    size = max(1, len(samples) // blocks)
    parts = [samples[begin : begin + size] for begin in range(0, len(samples) - size + 1, size)]
    xs = [sum(step for step, _ in part) / len(part) / 1000 for part in parts]
    ys = [middle([value for _, value in part]) for part in parts]
    if len(xs) < 3 or xs[0] == xs[-1]:
        raise ValueError(
            f"{len(samples)} samples from step {samples[0][0] if samples else 0:g} say nothing of a growth"
        )
    return xs, ys


def _quantile(free: int) -> float:
    return _T95[free - 1] if free <= len(_T95) else 2.09
