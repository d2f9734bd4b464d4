r"""Reads what is a number and nothing else: `$1,800.00`, `18 apples`, `1 1/2`, `\frac{3}{4}`, `x = 18`, `50%`. Pure."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from headrace.services.reward.scorers.answers.notation import plain_notation
from headrace.services.reward.scorers.answers.units import NO_UNIT, SCALES, Unit, read_unit

_DIGITS = 1500
"""More digits, or a larger power of ten, do not make a number that a person writes."""
_PLACES = 6
"""Significant digits of a decimal that stands for a fraction."""
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIZE = rf"""
    (?: (?P<whole>\d+) \s+ (?P<over>\d+) \s? / \s? (?P<under>\d+)
      | (?P<top>{_UNSIGNED}) \s? / \s? (?P<bottom>{_UNSIGNED})
      | (?P<decimal>{_UNSIGNED})
        (?: [eE] (?P<e>[-+]?\d+) | \s? [*x] \s? 10 \s? \^ \s? \{{? (?P<power>[-+]?\d+) \}}? )?
    )
"""
_SCALE_WORDS = "|".join(word for word in SCALES if word not in ("%", "k"))
_MEGA = "M"
"""A million, as `18M` has it; `18 m` are metres."""
_SCALE = rf"(?: [ -]? (?P<scale> % | (?<=\d)k\b | (?<=\d)(?-i:{_MEGA})\b | (?:{_SCALE_WORDS})\b ) )?"
_NAME = r"(?: [A-Za-z\\] [\w\\{}'() ]{0,40}? \s* (?: = | : (?!(?<=\d:)\d) ) \s* )?"
_CHAIN = re.compile(rf"{_NAME} (?: \sx\s(?=\d) | (?<=\d)x(?=\d) | [-+*/(){{}}\d.,\s%^] )* = \s*", re.VERBOSE)
_ABOUT = r"(?: (?: about|approximately|around|exactly|roughly|only|just|USD|EUR|GBP|Rs\.? ) \s+ )?"
_WHOLE = re.compile(
    rf"{_NAME} {_ABOUT} (?P<sign>[-+]?) \s? {_SIZE} (?![\d.,]*\d) {_SCALE} (?P<unit>.*)", re.VERBOSE | re.IGNORECASE
)
_RATIO = re.compile(r"(\d{1,9}(?:\s*(?::|\\colon|\bto\b)\s*\d{1,9})+)(?P<unit>.*)")
_RESULT = re.compile(r"\s*=\s*\$?\d")
"""The `=` after a calculation, with the first digit of its result."""
_SPACED = re.compile(r"(?<![\d.,/])[1-9]\d{0,2}(?: \d{3})+(?!\d|\s?[/^]|,\d)")
"""Thousands apart."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: Fraction
    scale: Fraction = Fraction(1)
    """What the sign or word after it multiplies it by: 1/100 of a percent sign, 1,000,000 of a million."""
    is_worked_out: bool = True
    """48/2 still has to be divided, as has 1.5/2; 7/2 and 1 1/2 are numbers as they are."""
    unit: Unit = NO_UNIT


def read_number(piece: str, context: str = "") -> Number | None:
    """The number that a piece of text is, with sign, unit, currency or name and nothing else; None if it is none.

    `context`: a text whose words may follow it, see `read_unit`.
    """
    text = _SPACED.sub(lambda match: match.group().replace(" ", ""), plain_notation(piece).strip().rstrip(".:;, "))
    before, text = text, without_chain(text)
    match = _WHOLE.fullmatch(text[1:-1] if text.startswith("(") and text.endswith(")") else text)
    found = _number(match, context) if match is not None else None
    return found if found is None or "=" not in before or _is_one_value(before, found) else None


def _is_one_value(chain: str, result: Number) -> bool:
    """Whether each side of an equation that is a number is that to which it comes: `41 = 42` gives none."""
    sides = [_WHOLE.fullmatch(side.strip()) for side in chain.split("=")[:-1]]
    numbers = [number for side in sides if side is not None and (number := _number(side, chain)) is not None]
    return all(same_number(number, result) for number in numbers)


def read_ratio(piece: str, context: str = "") -> tuple[tuple[int, ...], Unit] | None:
    """The lowest terms of a ratio (`6:4` or `6 to 4` is 3, 2) or of a time of the day, and what follows it.

    None if a piece is neither. `context` as in `read_number`.
    """
    match = _RATIO.fullmatch(plain_notation(piece).strip())
    unit = None if match is None else read_unit(match["unit"], context)
    if match is None or unit is None:
        return None
    parts = [int(part) for part in re.findall(r"\d+", match[1])]
    return tuple(part // (math.gcd(*parts) or 1) for part in parts), unit


def without_chain(text: str) -> str:
    """What an equation comes to: `x = 3 * 6 = 18` to 18."""
    while (chain := _CHAIN.match(text)) is not None:
        text = text[chain.end() :]
    return text


def same_number(wanted: Number, said: Number) -> bool:
    """Whether a person would call them one answer.

    A percent sign on one side only is a unit that was left away (50% and 50), or a way to write it (50% and 0.5, but
    8 apples are never written 800%). A `million` is none: 18 million is not 18. A unit of measure in the wanted one is
    met, or converted exactly. A decimal of six digits may be a fraction's rounding (0.333333 and 1/3).
    """
    if not wanted.unit.is_met_by(said.unit):
        return False
    if wanted.unit.powers:
        return _same(wanted.value * wanted.scale * wanted.unit.factor, said.value * said.scale * said.unit.factor)
    if wanted.scale == said.scale:
        return _same(wanted.value, said.value)
    smallest = min(wanted.scale, said.scale)
    if smallest < 1 and _same(wanted.value, said.value) and (wanted.scale < 1 or abs(wanted.value) >= 1):
        return True
    plain = said if wanted.scale < 1 else wanted
    is_share = abs(plain.value) <= 1 or plain.value.denominator > 1
    return (is_share or smallest >= 1) and _same(wanted.value * wanted.scale, said.value * said.scale)


def _same(one: Fraction, other: Fraction) -> bool:
    if one == other:
        return True
    # Only one of the two may be the other's rounding: that which is a decimal.
    if _is_decimal(one) == _is_decimal(other) or (one < 0) != (other < 0):
        return False
    return _rounded(one) == _rounded(other)


def _is_decimal(value: Fraction) -> bool:
    """Whether it ends, written with digits."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _rounded(value: Fraction) -> Fraction:
    """The value rounded to six significant digits."""
    size, places = abs(value), _PLACES
    while size and size >= 1 and places > -_DIGITS:
        size, places = size / 10, places - 1
    while size and size < Fraction(1, 10) and places < _DIGITS:
        size, places = size * 10, places + 1
    return round(value, places)


def _number(match: "re.Match[str]", context: str) -> Number | None:
    size, unit = _size(match), read_unit(match["unit"], context)
    if size is None or unit is None:
        return None
    word = "million" if match["scale"] == _MEGA else (match["scale"] or "").lower()
    scale = SCALES.get(word.replace("  ", " "), Fraction(1))
    return Number(-size if match["sign"] == "-" else size, scale, _is_worked_out(match), unit)


def _is_worked_out(match: "re.Match[str]") -> bool:
    """Whether a fraction is one of two integers, and not an integer itself; other numbers count as worked out."""
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    if top is None or _RESULT.match(match.string, match.end()):
        return True
    return "." not in top + bottom and _plain(top) % _plain(bottom) != 0


def _size(match: "re.Match[str]") -> Fraction | None:
    if len(match.group()) > _DIGITS:
        return None
    if match["whole"]:
        part = _ratio(match["over"], match["under"])
        return None if part is None else int(match["whole"]) + part
    if match["top"]:
        return _ratio(match["top"], match["bottom"])
    power = int(match["e"] or match["power"] or 0)
    return None if abs(power) > _DIGITS else _plain(match["decimal"]) * Fraction(10) ** power


def _ratio(top: str, bottom: str) -> Fraction | None:
    under = _plain(bottom)
    return _plain(top) / under if under else None


def _plain(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))
