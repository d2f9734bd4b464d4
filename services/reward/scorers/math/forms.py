r"""Whether a formula is worked out, by its tree as it was written: the question written again is not an answer.

What an answer may keep is what the row's own answer has: `1+3\sqrt{2}` has a sum, a root and coefficients. Trees are
sympy's, as math-verify reads them with evaluation off. Pure.
"""

from collections.abc import Iterator

import sympy
from sympy.core.function import AppliedUndef

_ALWAYS = frozenset(["fraction", "bracket"])
_SETS = (sympy.Intersection, sympy.Union, sympy.Complement)
_UNWORKED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)


def is_worked_out(said: sympy.Basic, gold: sympy.Basic) -> bool:
    """Whether an answer has no other operators than the row's own needs, and is a product where that is one."""
    if not isinstance(gold, sympy.Rel):
        said = said.args[-1] if isinstance(said, sympy.Equality) else said
    wanted, used = frozenset(_operators(gold)), frozenset(_operators(said))
    if "factored" in wanted and "factored" not in used:
        return False
    if "fraction" in wanted:
        wanted |= {"quotient"}
    return used <= wanted | _ALWAYS


def _operators(tree: sympy.Basic) -> Iterator[str]:
    """What is left to be worked out in a tree, or belongs to its form."""
    if isinstance(tree, sympy.MatMul | sympy.MatAdd):  # They are products and sums to sympy, too.
        yield "matrices"
        parts: list[sympy.Basic] = list(tree.args)
    elif isinstance(tree, sympy.Add):
        yield from _of_sum(_parts(tree, sympy.Add))
        parts = _parts(tree, sympy.Add)
    elif isinstance(tree, sympy.Mul):
        yield from _of_product(_parts(tree, sympy.Mul))
        parts = _parts(tree, sympy.Mul)
    else:
        yield from _of_node(tree)
        parts = list(tree.args[:1] if isinstance(tree, sympy.Pow) and tree.exp.is_Number else tree.args)
    for part in parts:
        yield from _operators(part)


def _of_node(tree: sympy.Basic) -> Iterator[str]:
    if isinstance(tree, sympy.Pow):
        yield from _of_power(tree.base, tree.exp)
    elif isinstance(tree, _SETS):
        yield "set"
    elif isinstance(tree, sympy.Rational) and not isinstance(tree, sympy.Integer):
        yield "fraction"
    elif isinstance(tree, (sympy.Function, *_UNWORKED)) and not isinstance(tree, AppliedUndef):
        yield type(tree).__name__


def _of_sum(terms: list[sympy.Basic]) -> Iterator[str]:
    yield "sum"
    rests = [_without_numbers(term) for term in terms]
    numbers = [rest for rest in rests if rest is None]
    named = [rest for rest in rests if rest is not None]
    if len(numbers) > 1 or sympy.S.Zero in terms or len(set(named)) < len(named):
        yield "like terms"
    if any(part.is_Add for term in terms if term.is_Mul for part in _parts(term, sympy.Mul)):
        yield "bracket in a sum"


def _of_product(factors: list[sympy.Basic]) -> Iterator[str]:
    over = [one for one in factors if one.is_Number and one is not sympy.S.NegativeOne]
    under = [one.base for one in factors if one.is_Pow and one.base.is_Number and one.exp == -1]
    ratio = sympy.Rational(1)
    for one in over:
        ratio *= one
    for one in under:
        ratio = ratio / one if one else ratio
    if (
        len(over) > 1
        or len(under) > 1
        or (sympy.S.One in over and not any(one.is_Pow and one.exp == -1 for one in factors))
        or factors.count(sympy.S.NegativeOne) > 1
    ):
        yield "numeric product"
    if under:
        yield "numeric product" if ratio.is_Integer else "fraction"
    others = [one for one in factors if not one.is_Number and not (one.is_Pow and one.base.is_Number and one.exp == -1)]
    sums = [one for one in others if one.is_Add]
    bases = [one.base if one.is_Pow else one for one in others if not one.is_Add]
    surds = [one for one in others if one.is_Pow and one.base.is_Number and not one.exp.is_Integer]
    if len(surds) > 1 or len(set(bases)) < len(bases):
        yield "like factors"
    if len(sums) > 1 or (sums and any(one.free_symbols for one in others if not one.is_Add)):
        yield "factored"
    elif sums:
        yield "bracket"


def _of_power(base: sympy.Basic, exponent: sympy.Basic) -> Iterator[str]:
    if exponent is sympy.S.One or base is sympy.S.One:
        yield "idle"
    if exponent.is_Rational and not exponent.is_Integer:
        yield "root"
        if base.is_Number and sympy.Pow(base, exponent).is_Rational:
            yield "exact root"
    elif base.is_Number and exponent == -1:
        yield "fraction"
    elif base.is_Number and exponent.is_Number:
        yield "numeric power"
    elif base.is_Add and exponent.is_Integer and exponent > 1:
        yield "factored"
    elif exponent != -1:
        yield "power"
    if exponent.is_Number and exponent.is_negative and not base.is_Number:
        yield "quotient"


def _parts(tree: sympy.Basic, kind: type) -> list[sympy.Basic]:
    """Terms of a sum, or factors of a product, as if it were written without inner brackets."""
    found: list[sympy.Basic] = []
    for part in tree.args:
        found += _parts(part, kind) if isinstance(part, kind) else [part]
    return found


def _without_numbers(term: sympy.Basic) -> sympy.Basic | None:
    """What a term counts: `3x` and `x/2` count x. None for a number."""
    factors = _parts(term, sympy.Mul) if term.is_Mul else [term]
    rest = [one for one in factors if not (one.is_Number or (one.is_Pow and one.base.is_Number and one.exp.is_Integer))]
    return sympy.Mul(*rest, evaluate=False) if rest else None
