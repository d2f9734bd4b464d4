"""How a number grows with the steps of a run: the slope of a line through its means, with a 95% interval. Pure."""

import math
from collections.abc import Sequence
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


def growth(samples: Sequence[tuple[float, float]], blocks: int = 20) -> Growth:
    """The growth of `samples`, pairs (step, value) in order, through the means of so many blocks of equal length.

    Neighbouring samples depend on each other, means of long blocks hardly do. Raises ValueError for less than three
    blocks of distinct steps.
    """
    size = max(1, len(samples) // blocks)
    parts = [samples[begin : begin + size] for begin in range(0, len(samples) - size + 1, size)]
    xs = [sum(step for step, _ in part) / len(part) / 1000 for part in parts]
    ys = [sum(value for _, value in part) / len(part) for part in parts]
    if len(xs) < 3 or xs[0] == xs[-1]:
        raise ValueError(
            f"{len(samples)} samples from step {samples[0][0] if samples else 0:g} say nothing of a growth"
        )
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    free = len(xs) - 2
    quantile = _T95[free - 1] if free <= len(_T95) else 2.09
    return Growth(slope, quantile * math.sqrt(rest / free / spread))
