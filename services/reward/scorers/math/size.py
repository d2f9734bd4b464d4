"""How large the numbers are that a formula asks for, before they are worked out.

A verifier evaluates what it compares: `9^{9^{9^9}}` would keep it busy until it is killed. Only what a formula's own
tree shows is seen here; the rest is for the worker's deadline.
"""

import math

import sympy

BITS = 4_000_000
"""Most bits of a number that is worked out."""
NODES = 2_000
"""Most nodes of a formula's tree."""
TERMS = 10_000
"""Most terms of a sum or product that is written out."""
EXPONENT = 1_000
"""Largest power of a sum, which may be multiplied out."""
_FLOAT = 1000
_FACTORIALS = (sympy.factorial, sympy.factorial2, sympy.subfactorial, sympy.gamma, sympy.binomial)


class TooLargeError(ValueError):
    """The formula is too large to be worked out."""


def check_size(expression: object) -> None:
    """Raises TooLargeError for a formula (a tree of sympy's) with numbers of more than BITS bits on the way."""
    for count, _ in enumerate(sympy.preorder_traversal(expression)):
        if count > NODES:
            raise TooLargeError(f"more than {NODES} parts")
    _bits(expression)


def _bits(node: object) -> float:
    """log2 of the magnitude, at most; 1 for what has no size of its own: a variable, a relation."""
    if isinstance(node, sympy.Number):
        return _bits_of_number(node)
    if isinstance(node, sympy.Pow):
        return _bits_of_power(node.base, node.exp)
    if isinstance(node, sympy.exp):
        return _bits_of_power(sympy.E, node.args[0])
    sizes = [_bits(part) for part in getattr(node, "args", ())]
    if isinstance(node, _FACTORIALS):
        return _bounded(_magnitude(sizes[0]) * sizes[0])
    if isinstance(node, sympy.Sum | sympy.Product):
        for limit in node.limits:
            _magnitude(max(map(_bits, limit[1:]), default=1.0), TERMS)
    return _bounded(sum(sizes)) if isinstance(node, sympy.Mul) else max(sizes, default=1.0)


def _bits_of_number(node: sympy.Number) -> float:
    if isinstance(node, sympy.Rational):
        return float(max(abs(node.p).bit_length(), node.q.bit_length(), 1))
    return max(1.0, abs(float(sympy.log(abs(node), 2)))) if node.is_finite and not node.is_zero else 1.0


def _bits_of_power(base: sympy.Expr, exponent: sympy.Expr) -> float:
    size = _bits(base)
    if isinstance(exponent, sympy.Rational):
        count = abs(float(exponent)) if exponent.p.bit_length() < _FLOAT else math.inf
    else:
        count = 1.0 if exponent.free_symbols else _magnitude(_bits(exponent))
    if base.free_symbols and not isinstance(base, sympy.Symbol) and count > EXPONENT:
        raise TooLargeError(f"a sum to the power of {count:g}")
    return _bounded(size * max(1.0, count))


def _magnitude(bits: float, most: int = BITS) -> float:
    """The number that has so many bits, where so many things may be worked out."""
    if bits > math.log2(most) + 1:
        raise TooLargeError(f"2^{bits:.0f} things to work out")
    return float(2.0**bits)


def _bounded(bits: float) -> float:
    if bits > BITS:
        raise TooLargeError(f"a number of {bits:.0f} bits")
    return bits
