r"""Which operators a formula was left with, and whether an answer with those is worked out.

A sum of numbers, a product of sums, an unevaluated function are the question written again, whatever their value. What
an answer may keep is what the row's own answer has: `1+3\sqrt{2}` has a sum, a root and coefficients. Pure.
"""

import functools
import math
from collections.abc import Iterator
from fractions import Fraction

from headrace.services.reward.scorers.math.formula import FormError, Formula, joined, parts_of
from headrace.services.reward.scorers.math.parser import parse_formula

FRACTION = "fraction"
"""A fraction of two integers that is not an integer: a number that is worked out."""
_PART = "part of a sum"
"""`2(x+3)`: what all terms have in common, before them."""
_ALWAYS = frozenset([FRACTION, "product", "division", _PART])
"""What a closed form may have whatever the row's answer has: coefficients, also as fractions, also of a sum."""
_CONSTANTS = frozenset(["e", "i", "\\pi", "\\infty", "\\circ"])
_DIGITS = 400
_IDLE = "idle"
"""An operation that changes nothing, such as times one."""
_ZERO, _ONE = Formula("number", name="0"), Formula("number", name="1")


def operators(formula: Formula) -> frozenset[str]:
    """What is left to be worked out in a formula, or belongs to its form: `sum`, `numeric product`, `sin`..."""
    return frozenset(_operators(formula))


def is_worked_out(said: Formula, wanted: Formula | None) -> bool:
    """Whether an answer has no other operators than the row's answer needs; `wanted` is None for a number."""
    result = result_of(said)
    if wanted is None:
        return operators(result) <= {FRACTION}
    used = operators(said if wanted.form == "relation" else result)
    if _is_factored(result_of(wanted)) and "factored" not in operators(result):
        return False
    return used <= _allowed(wanted)


def has_operator(said: Formula, *, whole: bool) -> bool:
    """Whether it has operators, and is no number in an accepted form: the whole equation, or what it comes to.

    Coefficients alone are none: `2 x`.
    """
    return bool(operators(said) - {FRACTION}) if whole else bool(operators(result_of(said)) - {FRACTION, "product"})


def result_of(formula: Formula) -> Formula:
    """What an equation comes to: its last side."""
    is_equation = formula.form == "relation" and set(formula.name.split()) <= {"=", "\\to", "\\in"} and formula.parts
    return formula.parts[-1] if is_equation else formula


def same_form(said: Formula, wanted: Formula) -> bool:
    """Whether two are one formula, but for the order of terms and factors, and a name before it."""
    return result_of(said) == result_of(wanted)


@functools.lru_cache(maxsize=1024)
def read_formula(text: str) -> Formula | None:
    """The tree of a formula; None for one that is empty or nested too deeply."""
    try:
        return parse_formula(text)
    except FormError:
        return None


def _allowed(wanted: Formula) -> frozenset[str]:
    found = operators(wanted)
    numbers = [part.name for part in parts_of(wanted) if part.form == "number"]
    if found & {FRACTION, "division"} or any(not name.isdecimal() for name in numbers):
        found |= {"quotient", "quotient of a sum"}
    is_single = wanted.form == "row" or result_of(wanted).form in ("row", "number", "symbol")
    return found | _ALWAYS | (frozenset() if is_single else {"set"})


def _is_factored(formula: Formula) -> bool:
    """Whether the whole is a product of sums, or of a sum and variables."""
    formula = formula.parts[0] if formula.form == "negative" else formula
    return "factored" in _own(formula)


def _operators(formula: Formula) -> Iterator[str]:
    for part in parts_of(formula):
        yield from _own(part)


def _own(formula: Formula) -> Iterator[str]:
    """Operators of a formula's topmost sign alone."""
    match formula.form:
        case "sum":
            yield from _of_sum(formula)
        case "product":
            yield from _of_product(formula.parts)
        case "quotient":
            yield from _of_quotient(*formula.parts)
        case "power":
            yield from _of_power(formula.parts[0], formula.parts[-1])
        case "root":
            yield "exact root" if _is_exact(*formula.parts) else "root"
        case "function":
            yield formula.name
        case "set":
            yield "set"
        case "negative" if formula.parts[0].form == "negative":
            yield _IDLE
        case "negative" if formula.parts[0].form == "sum":
            yield _PART


def _of_sum(formula: Formula) -> Iterator[str]:
    yield "sum"
    rests = [_without_coefficient(term) for term in formula.parts]
    if sum(rest is None for rest in rests) > 1:
        yield "numeric sum"
    if any(map(_is_bracket, formula.parts)):
        yield "bracket in a sum"
    if _ZERO in map(_unsigned, formula.parts):
        yield _IDLE
    named = [rest for rest in rests if rest is not None]
    if len(set(named)) < len(named):
        yield "like terms"


def _of_product(parts: tuple[Formula, ...]) -> Iterator[str]:
    factors = [_unsigned(part) for part in parts]
    numbers = [factor for factor in factors if _is_numeric(factor)]
    others = [factor for factor in factors if not _is_numeric(factor)]
    sums = [factor for factor in others if _base(factor).form == "sum"]
    matrices = [factor for factor in others if factor.form == "matrix"]
    if len(numbers) > 1:
        yield "numeric product"
    if _ONE in numbers:
        yield _IDLE
    if matrices:
        yield "product of matrices" if len(matrices) > 1 else "multiple of a matrix"
    bases = [_base(factor) for factor in others if _base(factor).form != "sum"]
    if len(set(bases)) < len(bases) or sum(_is_surd(factor) for factor in others) > 1:
        yield "like factors"
    if len(sums) > 1 or (sums and (sums[0].form == "power" or any(map(_has_variables, set(others) - set(sums))))):
        yield "factored"
    yield _PART if sums else "product"


def _of_quotient(top: Formula, bottom: Formula) -> Iterator[str]:
    bottom = _unsigned(bottom)
    if bottom == _ONE:
        yield _IDLE
    if _is_numeric(top) and _is_numeric(bottom):
        yield _of_fraction(top, bottom)
    elif bottom.form == "number" and bottom.name.isdecimal():
        yield "quotient of a sum" if top.form == "sum" else "division"
        whole = _coefficient(top)
        if whole is not None and int(bottom.name) and whole % int(bottom.name) == 0:
            yield "exact quotient"
    else:
        yield "quotient"
        if top == bottom or (_is_surd(top) and _is_surd(bottom)):
            yield "like factors"


def _of_fraction(top: Formula, bottom: Formula) -> str:
    if top.form != "number" or bottom.form != "number" or not (top.name + bottom.name).isdecimal():
        return "numeric quotient"
    if len(top.name + bottom.name) > _DIGITS or not int(bottom.name):
        return "numeric quotient"
    return FRACTION if int(top.name) % int(bottom.name) else "exact quotient"


def _of_power(base: Formula, exponent: Formula) -> Iterator[str]:
    if base.form == "sum":
        yield "factored"
    if exponent == _ONE:
        yield _IDLE
    if _unsigned(exponent).form == "quotient" or (exponent.form == "number" and "." in exponent.name):
        yield "root"
        if exponent.form == "negative":
            yield "quotient"
    elif _is_numeric(base) and _is_numeric(exponent):
        yield "numeric power"
    elif exponent.form == "negative":
        yield "quotient"
        if exponent.parts[0] != _ONE:
            yield "power"
    else:
        yield "power"


def _unsigned(formula: Formula) -> Formula:
    return formula.parts[0] if formula.form == "negative" else formula


def _is_bracket(term: Formula) -> bool:
    """Whether a term is a sum that was not multiplied out: `4(n-5)`."""
    term = _unsigned(term)
    return term.form == "sum" or (
        term.form == "product" and any(part.form == "sum" for part in map(_unsigned, term.parts))
    )


def _is_numeric(formula: Formula) -> bool:
    """Whether it is a rational number, worked out or not."""
    if formula.form == "number":
        return True
    if formula.form in ("sum", "product", "quotient", "power", "negative"):
        return all(map(_is_numeric, formula.parts)) and not _is_root(formula)
    return formula.form == "function" and formula.name == "factorial" and all(map(_is_numeric, formula.parts))


def _is_root(formula: Formula) -> bool:
    return formula.form == "power" and _unsigned(formula.parts[-1]).form == "quotient"


def _is_surd(formula: Formula) -> bool:
    """A root of a number."""
    return (formula.form == "root" or _is_root(formula)) and _is_numeric(formula.parts[0])


def _base(formula: Formula) -> Formula:
    return formula.parts[0] if formula.form == "power" else formula


def _without_coefficient(term: Formula) -> Formula | None:
    """What a term counts: `3x` and `x/2` count x. None for a number."""
    term = _unsigned(term)
    if _is_numeric(term):
        return None
    if term.form == "quotient" and _is_numeric(term.parts[1]):
        return _without_coefficient(term.parts[0])
    if term.form == "product":
        return joined("product", [factor for factor in term.parts if not _is_numeric(_unsigned(factor))])
    return term


def _coefficient(term: Formula) -> int | None:
    """The integer before a term; None where there is none, or it is none."""
    factors = term.parts if term.form == "product" else (term,)
    numbers = [factor for factor in factors if factor.form == "number" and factor.name.isdecimal()]
    return int(numbers[0].name) if len(numbers) == 1 and len(numbers[0].name) < _DIGITS else None


def _has_variables(formula: Formula) -> bool:
    return any(part.form == "symbol" and part.name not in _CONSTANTS for part in parts_of(formula))


def _is_exact(radicand: Formula, index: Formula) -> bool:
    """The root of an integer that is an integer."""
    if not (radicand.name.isdecimal() and index.name.isdecimal() and len(index.name) < 3):
        return False
    if len(radicand.name) > _DIGITS:
        return False
    number, degree = int(radicand.name), int(index.name)
    if degree == 2:
        return math.isqrt(number) ** 2 == number
    near = round(float(Fraction(number)) ** (1 / degree)) if degree and number < 10**300 else -1
    return any(one >= 0 and one**degree == number for one in (near - 1, near, near + 1))
