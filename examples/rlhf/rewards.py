"""What whoever ranks the pairs likes. The training only sees ranked pairs; this measures what came of them."""

from collections.abc import Sequence
from itertools import pairwise


def quality(completion: str, letters: str) -> float:
    """1 for the asked letters in alphabetical order, down to 0; below 0 if they are not the asked ones."""
    wrong = sum(completion.count(letter) != 1 for letter in letters) + abs(len(completion) - len(letters))
    return -wrong / len(letters) if wrong else _ordered(completion)


def _ordered(letters: Sequence[str]) -> float:
    """Share of neighbours in alphabetical order."""
    return sum(before < after for before, after in pairwise(letters)) / (len(letters) - 1)
