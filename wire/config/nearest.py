"""The names that are most like one that was misspelt: for error messages. Pure."""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_LIKE = 0.65
"""Similarity from which a name is worth proposing; 1 = equal but for dashes, underscores and case."""


def nearest(word: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like `word`, the best first; a dotted name is compared whole and by its last part."""
    found = sorted(((_likeness(word, name), name) for name in names), key=lambda one: -one[0])
    # What is spelt alike in several tables is not beside the point; what is merely like it then is.
    least = 1.0 if found and found[0][0] == 1.0 else _LIKE
    return [name for likeness, name in found if likeness >= least][:count]


def unknown(word: str, names: Iterable[str], of: str = "") -> str:
    """`'word' is not one of`, what they are, if need be, and all names, those most like `word` first."""
    found = sorted(names, key=lambda name: -_likeness(word, name))
    return f"{word!r} is not one of {of}{', '.join(found) or 'none'}"


def one_of(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _likeness(word: str, name: str) -> float:
    parts = (name, name.rpartition(".")[2])
    return max(SequenceMatcher(None, _plain(word), _plain(part)).ratio() for part in parts)


def _plain(text: str) -> str:
    return re.sub(r"[-_.\s]", "", text).lower()
