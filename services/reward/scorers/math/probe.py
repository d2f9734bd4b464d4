"""Compares two formulas by their values: exactly where they are exact numbers, else at a few points.

What is neither is for the verifier to decide.
"""

from fractions import Fraction

import sympy

from headrace.services.reward.scorers.math.size import check_size

_POINTS = (0.731058, 1.618033, 0.367879, 2.236067, 0.567143, 1.202056, 0.915965, 1.772453)
"""Positive, and unlikely to occur in a formula."""
_DIGITS = 30
_CLOSE = 1e-12
_ROUNDED = 1e-6
"""Share of its own size by which a number with decimals may miss one that has none."""


def same_number(gold: sympy.Basic, said: sympy.Basic) -> bool | None:
    """Whether two numbers are one; None if one of the two is not a number, or its value cannot be computed."""
    one, other = exact_value(gold), exact_value(said)
    if one is not None and other is not None:
        return one == other
    if not all(_is_plain(tree) and not tree.free_symbols for tree in (gold, said)):
        return None
    first, second = _value(gold, {}), _value(said, {})
    return None if first is None or second is None else _close(first, second, gold, said)


def surely_differ(gold: sympy.Basic, said: sympy.Basic) -> bool:
    """Whether both are formulas, points, intervals or matrices that are apart where their variables have values."""
    if isinstance(gold, _HOLDERS) and type(gold) is type(said) and len(gold.args) == len(said.args):
        return any(surely_differ(*pair) for pair in zip(_held(gold), _held(said), strict=False))
    if not all(map(_is_plain, (gold, said))):
        return False
    names = sorted({str(symbol) for one in (gold, said) for symbol in one.free_symbols})
    if len(names) > len(_POINTS):
        return False
    values = dict(zip(names, _POINTS, strict=False))
    one, other = _value(gold, values), _value(said, values)
    return one is not None and other is not None and not _close(one, other, gold, said)


def exact_value(tree: sympy.Basic) -> Fraction | None:
    """The number that sums, products, powers and factorials of integers come to; None for all others.

    Raises TooLargeError.
    """
    try:
        check_size(tree)
        return _exact(tree)
    except (ZeroDivisionError, OverflowError):
        return None


def _exact(tree: sympy.Basic) -> Fraction | None:
    if isinstance(tree, sympy.Rational):
        return Fraction(int(tree.p), int(tree.q))
    parts = [_exact(part) for part in tree.args] if isinstance(tree, _ARITHMETIC) else [None]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if isinstance(tree, sympy.Add):
        return sum(known, Fraction(0))
    if isinstance(tree, sympy.Mul):
        product = Fraction(1)
        for part in known:
            product *= part
        return product
    if isinstance(tree, sympy.Pow):
        base, exponent = known
        return base ** int(exponent) if exponent.denominator == 1 else None
    if isinstance(tree, sympy.factorial):
        return Fraction(int(sympy.factorial(int(known[0])))) if known[0].denominator == 1 and known[0] >= 0 else None
    return known[0]


_ARITHMETIC = (sympy.Add, sympy.Mul, sympy.Pow, sympy.factorial, sympy.UnevaluatedExpr)
_HOLDERS = (sympy.Tuple, sympy.Interval, sympy.ImmutableDenseMatrix)


def _held(tree: sympy.Basic) -> list[sympy.Basic]:
    if isinstance(tree, sympy.ImmutableDenseMatrix):
        return list(tree)
    return list(tree.args[:2] if isinstance(tree, sympy.Interval) else tree.args)


def _is_plain(tree: sympy.Basic) -> bool:
    return isinstance(tree, sympy.Expr) and not tree.is_Matrix


def _close(one: complex, other: complex, gold: sympy.Basic, said: sympy.Basic) -> bool:
    is_rounded = gold.has(sympy.Float) or said.has(sympy.Float)
    return abs(one - other) <= (_ROUNDED if is_rounded else _CLOSE) * max(abs(one), abs(other))


def _value(expression: sympy.Expr, values: dict[str, float]) -> complex | None:
    """The formula's value; None where it has none: a pole, an unknown function."""
    at = {symbol: sympy.Float(values[str(symbol)], _DIGITS) for symbol in expression.free_symbols}
    try:
        value = complex(expression.evalf(_DIGITS, subs=at))
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None
    return value if abs(value) < float("inf") else None
