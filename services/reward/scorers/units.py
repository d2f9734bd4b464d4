"""What may stand behind a number and leaves it the number that it is: `dollars`, `km/h`, `apples a day`. Pure."""

import re
from fractions import Fraction

SCALES = {
    "%": Fraction(1, 100),
    "percent": Fraction(1, 100),
    "per cent": Fraction(1, 100),
    "pct": Fraction(1, 100),
    "thousand": Fraction(10**3),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
}
"""Words that multiply the number before them."""
_SPELLED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
WORDS = {word: value for value, word in enumerate(_SPELLED.split())}
"""Numbers that people spell out."""
_LETTERS = frozenset("mgshlLVWAKJNCFTtaA")
"""Units of one letter, and the article."""
_FUNCTIONS = {"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "inf", "infty"}
_NO_UNIT = _FUNCTIONS | {"or", "and", "to", "times", "than", "minus", "plus", "hundred", "dozen"}
_ALLOWED = re.compile(
    r"\s*/?(?:[A-Za-z\s.,'\"()\u00a2]|(?<=[A-Za-z])[-/](?=[A-Za-z])|(?<=[A-Za-z])\s?\^?\{?[23\u00b2\u00b3]\}?)*"
)


def is_unit(text: str) -> bool:
    """Whether the text behind a number only says what is counted: no variable, no function, no second number."""
    if not _ALLOWED.fullmatch(text) or "(" in text[:1]:
        return False
    words = re.findall(r"[A-Za-z]+", text)
    return all(word.lower() not in _NO_UNIT and (len(word) > 1 or word in _LETTERS) for word in words)
