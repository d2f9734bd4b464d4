"""A formula as it is written: a tree in which nothing is worked out. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Form = Literal[
    "number", "symbol", "text", "sum", "negative", "product", "quotient", "power", "root", "function", "matrix", "row",
    "relation", "set"
]  # fmt: skip
_HIGHEST = 120
"""Levels of a tree."""


class FormError(ValueError):
    """Nothing that can be read as a formula."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula, or a part of one."""

    form: Form
    parts: tuple["Formula", ...] = ()
    name: str = ""
    """Digits of a number; name of a symbol or function; signs of a relation."""


def check_depth(formula: Formula) -> None:
    """Raises FormError for a tree that is too deep to be walked; a chain of powers needs no brackets to be."""
    level, depth = [formula], 0
    while level:
        level, depth = [part for one in level for part in one.parts], depth + 1
        if depth > _HIGHEST:
            raise FormError("nested too deeply")


def joined(form: Form, parts: Sequence[Formula]) -> Formula:
    """A sum or product of parts in the order that all of its spellings share; the part itself where there is one."""
    if len(parts) == 1:
        return parts[0]
    return Formula(form, tuple(sorted(parts, key=repr)))


def quotient_of(top: Formula, bottom: Formula) -> Formula:
    """Without units: km/h is none."""
    if bottom.form == "text":
        return top
    if top.form == "negative":
        return Formula("negative", (quotient_of(top.parts[0], bottom),))
    return Formula("quotient", (top, bottom))


def multiply(factors: list[Formula], factor: Formula) -> None:
    """Adds a factor; those of a product in brackets are the product's own."""
    factors.extend(factor.parts if factor.form == "product" else (factor,))


def is_mixed(whole: Formula, part: Formula) -> bool:
    """2 and 1/3: a mixed number."""
    numbers = (whole, *part.parts)
    if part.form != "quotient" or not all(one.form == "number" and one.name.isdecimal() for one in numbers):
        return False
    return int(part.parts[0].name) < int(part.parts[1].name)


def is_scientific(mantissa: Formula, power: Formula) -> bool:
    """1.2 and 10^3: scientific notation."""
    if mantissa.form != "number" or power.form != "power" or power.parts[0] != Formula("number", name="10"):
        return False
    exponent = power.parts[1].parts[0] if power.parts[1].form == "negative" else power.parts[1]
    return exponent.form == "number" and exponent.name.isdecimal()


def parts_of(formula: Formula) -> Iterator[Formula]:
    """The formula and all parts of it."""
    yield formula
    for part in formula.parts:
        yield from parts_of(part)
