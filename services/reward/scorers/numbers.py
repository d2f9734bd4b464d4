r"""Reads numbers as a person does: `$1,800.00`, `18 dollars`, `1 1/2`, `\frac{3}{4}`, `x = 18`, `50%`. Pure."""

import re
from dataclasses import dataclass
from fractions import Fraction

from services.reward.scorers.answers import SEEN, Answer, Place, find_answer
from services.reward.scorers.notation import plain_notation
from services.reward.scorers.units import SCALES, WORDS, is_unit

_DIGITS = 400
"""More digits, or a larger power of ten, are no number that a person writes."""
_PLACES = 6
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIZE = rf"""
    (?: (?P<whole>\d+) \s+ (?P<over>\d+) \s? / \s? (?P<under>\d+)
      | (?P<top>{_UNSIGNED}) \s? / \s? (?P<bottom>{_UNSIGNED})
      | (?P<decimal>{_UNSIGNED})
        (?: [eE] (?P<e>[-+]?\d+) | \s? [*x] \s? 10 \s? \^ \s? \{{? (?P<power>[-+]?\d+) \}}? )?
    )
"""
_SCALE = rf"(?: [ -]? (?P<scale>%|(?:{'|'.join(word for word in SCALES if word != '%')})\b) )?"
_NO_MORE = r"(?! [.,]?\d | \^ | /\s?\d | (?:st|nd|rd|th)\b | [xyzna-e](?![A-Za-z]) | [A-Za-z]\d )"
_ANYWHERE = re.compile(rf"(?<![\w.^/]) (?P<sign>[-+]?) {_SIZE} {_NO_MORE} {_SCALE}", re.VERBOSE | re.IGNORECASE)
_NAME = r"(?: [A-Za-z\\] [\w\\{}'() ]{0,40}? \s* [=:] \s* )?"
_CHAIN = re.compile(rf"{_NAME} (?: \sx\s(?=\d) | (?<=\d)x(?=\d) | [-+*/()\d.,\s%^] )* = \s*", re.VERBOSE)
_WORDS = r"(?: (?: about|approximately|around|exactly|roughly|only|just|USD|EUR|GBP|Rs\.? ) \s+ )?"
_UNIT = r"(?P<unit>[^\d]* (?: (?<=[a-z\s^{]) [23] \}? \s* )? )"
_WHOLE = re.compile(rf"{_NAME} {_WORDS} (?P<sign>[-+]?) {_SIZE} \.?(?!\d) {_SCALE} {_UNIT}", re.VERBOSE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: Fraction
    scale: Fraction = Fraction(1)
    """What the sign or word behind it multiplies it by: 1/100 of a percent sign, 1,000,000 of a million."""


def read_number(piece: str) -> Number | None:
    """The number that a piece of text is, with sign, unit, currency or name and nothing else; None if it is none."""
    text = plain_notation(piece).strip().rstrip(".:;, ")
    chain = _CHAIN.match(text)  # "x = 3 * 6 = 18": what it comes to.
    while chain is not None:
        text = text[chain.end() :]
        chain = _CHAIN.match(text)
    word, _, unit = text.partition(" ")
    if word.lower() in WORDS:
        return Number(Fraction(WORDS[word.lower()])) if is_unit(unit) else None
    match = _WHOLE.fullmatch(text)
    return _number(match) if match is not None and is_unit(match["unit"]) else None


def last_number(text: str) -> Number | None:
    """The last one in a text; behind the last `=` of the text's last line with a number, the first."""
    for line in reversed(plain_notation(text[-SEEN:]).splitlines()):
        _, equals, after = line.rpartition("=")
        found = _all(after) if equals else []
        if found:
            return found[0]
        found = _all(line)
        if found:
            return found[-1]
    return None


def number_of(answer: Answer) -> Number | None:
    """The number at an answer's place: the whole of it, else the one in it that a person would take."""
    text = answer.text if answer.place is Place.BOX else answer.text.rstrip("! ")
    whole = read_number(text)
    if whole is not None or answer.place is Place.BOX:
        return whole
    if answer.place is not Place.PHRASE:
        return last_number(text)
    text = plain_notation(text)
    while (chain := _CHAIN.match(text)) is not None:
        text = text[chain.end() :]
    found = _all(text)
    return found[0] if found else None


def final_number(text: str) -> Fraction | None:
    """The number that a person would take for the text's answer (see `find_answer`), as it is written; or None."""
    answer = find_answer(text)
    if answer is None:
        return None
    found = number_of(answer)
    if found is None:
        found = last_number(text if answer.place in (Place.PHRASE, Place.LINE) else answer.text)
    return None if found is None else found.value


def same_number(wanted: Number, said: Number) -> bool:
    """Whether a person would call them one answer.

    A percent sign (or a `million`) on one side only is a unit that was left away (50% and 50), or a way to write it
    (50% and 0.5, but nobody writes 800% for 8 apples). A decimal of six places may be the other's rounding (0.333333
    and 1/3).
    """
    if wanted.scale == said.scale:
        return _same(wanted.value, said.value)
    if _same(wanted.value, said.value) and abs(wanted.value) >= 1:
        return True
    plain = said if wanted.scale < 1 else wanted
    is_share = abs(plain.value) <= 1 or plain.value.denominator > 1
    may_be_written = is_share or min(wanted.scale, said.scale) >= 1
    return may_be_written and _same(wanted.value * wanted.scale, said.value * said.scale)


def _same(one: Fraction, other: Fraction) -> bool:
    if one == other or (one.denominator == 1 and other.denominator == 1):
        return one == other
    return round(one, _PLACES) == round(other, _PLACES) != 0


def _all(text: str) -> list[Number]:
    found = (_number(match) for match in _ANYWHERE.finditer(text))
    return [number for number in found if number is not None]


def _number(match: "re.Match[str]") -> Number | None:
    size = _size(match)
    if size is None:
        return None
    word = (match["scale"] or "").lower()
    return Number(-size if match["sign"] == "-" else size, SCALES.get(word.replace("  ", " "), Fraction(1)))


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
