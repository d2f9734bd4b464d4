"""Reads the number that a person would take for the answer of a text. Pure."""

import re
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:/\d+)?(?!\w)")
_MARK = re.compile(r"####\s*([^\n]*)")


def final_number(text: str) -> Decimal | None:
    r"""The number behind the last `####`, else in the last `\boxed{}`, else the last one of the text; None if none."""
    marks = _MARK.findall(text)
    if marks:
        return _last_number(marks[-1])
    boxed = last_boxed(text)
    if boxed is not None:
        return _last_number(boxed)
    return _last_number(text)


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}`, braces matched; None if there is none or it is not closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    begin = start + len("\\boxed{")
    for position in range(begin - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None


def _last_number(text: str) -> Decimal | None:
    found = [match.group() for match in _NUMBER.finditer(text) if any(c.isdigit() for c in match.group())]
    return _parse(found[-1]) if found else None


def _parse(text: str) -> Decimal | None:
    numerator, _, denominator = text.replace(",", "").partition("/")
    try:
        value = Decimal(numerator)
        return value / Decimal(denominator) if denominator else value
    except (InvalidOperation, ZeroDivisionError):
        return None
