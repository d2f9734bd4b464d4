"""What may stand behind a number and leaves it the number that it is: `dollars`, `km/h`, `apples a day`. Pure."""

import re
from fractions import Fraction

SCALES = {
    "%": Fraction(1, 100),
    "percent": Fraction(1, 100),
    "per cent": Fraction(1, 100),
    "pct": Fraction(1, 100),
    "k": Fraction(10**3),
    "thousand": Fraction(10**3),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
}
"""Words that multiply the number before them."""
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: value for value, word in enumerate(_ONES.split())}
_WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
_DOZEN = 12
_LARGE = "hundred|thousand|million|billion"
_SPELLED = re.compile(
    rf"(?:(?:a|one)[ -](?=dozen|{_LARGE}))?(?:{'|'.join(_WORDS)}|dozen|{_LARGE})\b"
    rf"(?:(?:[ -]|,? and )(?:{'|'.join(_WORDS)}|dozen|{_LARGE})\b){{0,12}}(?!\s+of\b)",
    re.IGNORECASE,
)
"""Numbers that people spell out."""
_LETTERS = frozenset("mgshlLVWAKJNCFTtaA")
"""Units of one letter, and the article."""
_FUNCTIONS = {"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "inf", "infty"}
_PARTS = (
    "squared cubed factorial halves thirds fourths fifths sixths sevenths eighths ninths tenths hundredths "
    "thousandths hundred dozen dozens score"
)
_LINKS = (
    "or and to times than minus plus not but maybe perhaps divided multiplied over through versus is are was wrong "
    "incorrect"
)
_NO_UNIT = {*_FUNCTIONS, *_PARTS.split(), *_LINKS.split(), *SCALES}
"""What makes another number of the one before it, or leads to a second one."""
_ALLOWED = re.compile(
    r"\s*/?(?:[A-Za-z\s.,'\"()\u00a2]|(?<=[A-Za-z])[-/](?=[A-Za-z])|(?<=[A-Za-z])\s?(?:\^\s?\{?[23]\}?|[\u00b2\u00b3])|(?<=[a-z])[23])*"
)


def is_unit(text: str) -> bool:
    """Whether the text behind a number only names what is counted: no variable, no function, no second number."""
    if not _ALLOWED.fullmatch(text) or "(" in text[:1]:
        return False
    words = re.findall(r"[A-Za-z]+", text)
    return all(word.lower() not in _NO_UNIT and (len(word) > 1 or word in _LETTERS) for word in words)


def spelled_number(text: str) -> tuple[int, str] | None:
    """A number in words that a text begins with, and the rest: `twenty-five apples` is 25 apples."""
    found = _SPELLED.match(text)
    if found is None:
        return None
    total, part = 0, 0
    for word in re.findall(r"[a-z]+", found.group().lower()):
        if word in _WORDS:
            part += _WORDS[word]
        elif word == "dozen":
            part = _DOZEN * max(part, 1)
        elif word == "hundred":
            part = 100 * max(part, 1)
        elif word in SCALES:
            total, part = total + max(part, 1) * int(SCALES[word]), 0
    return total + part, text[found.end() :]
