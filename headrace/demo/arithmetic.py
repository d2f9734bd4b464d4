"""Two-digit addition: `17+25=` -> `42`, every pair once, held-out pairs apart from all training. Pure."""

import random
from dataclasses import dataclass

CHARACTERS = "0123456789+="
_SMALLEST, _LARGEST = 10, 99


@dataclass(frozen=True, slots=True)
class Sum:
    """One exercise."""

    prompt: str
    answer: str


def exercises(*, seed: int, held_out: int) -> tuple[list[Sum], list[Sum]]:
    """(training, held-out) sums, shuffled; together all 8100 pairs."""
    pairs = [(a, b) for a in range(_SMALLEST, _LARGEST + 1) for b in range(_SMALLEST, _LARGEST + 1)]
    random.Random(seed).shuffle(pairs)
    sums = [Sum(f"{a}+{b}=", str(a + b)) for a, b in pairs]
    return sums[held_out:], sums[:held_out]
