"""Distinguishes two formulas by their values at a few points: cheap, where a verifier would simplify for seconds.

It only ever finds that they differ; whether they are equal is for the verifier to decide.
"""

import sympy

_POINTS = (0.731058, 1.618033, 0.367879, 2.236067, 0.567143, 1.202056, 0.915965, 1.772453)
"""Positive, and unlikely to occur in a formula."""
_DIGITS = 15
_CLOSE = 1e-6
_UNWORKED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)


def is_unworked(expression: sympy.Basic) -> bool:
    """Whether it still has to be worked out: an integral, a sum, a limit. The question written again is no answer."""
    return bool(expression.has(*_UNWORKED))


def surely_differ(gold: sympy.Basic, said: sympy.Basic) -> bool:
    """Whether both are plain formulas, and far apart where their variables have the same values."""
    if not all(isinstance(one, sympy.Expr) and not one.is_Matrix for one in (gold, said)):
        return False
    names = sorted({str(symbol) for one in (gold, said) for symbol in one.free_symbols})
    if len(names) > len(_POINTS):
        return False
    values = dict(zip(names, _POINTS, strict=False))
    one, other = _value(gold, values), _value(said, values)
    return one is not None and other is not None and abs(one - other) > _CLOSE * max(1.0, abs(one), abs(other))


def _value(expression: sympy.Expr, values: dict[str, float]) -> complex | None:
    """The formula's value; None where it has none: a pole, an unknown function."""
    at = {symbol: sympy.Float(values[str(symbol)], _DIGITS) for symbol in expression.free_symbols}
    try:
        value = complex(expression.evalf(_DIGITS, subs=at))
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None
    return value if abs(value) < float("inf") else None
