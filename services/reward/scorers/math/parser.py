r"""Formulas as they are written, as trees in which nothing is worked out: `17+25` stays a sum of two numbers.

math-verify's parser works out what it reads (`\binom{8}{4}` is 70 in its trees), so they do not show how an answer was
written. Equal formulas in another order of terms or factors have equal trees. Pure.
"""

import unicodedata
from collections.abc import Sequence

from headrace.services.reward.scorers.math.formula import (
    FormError,
    Formula,
    check_depth,
    is_mixed,
    is_scientific,
    joined,
    multiply,
    quotient_of,
)
from headrace.services.reward.scorers.math.tokens import FUNCTIONS, Token, tokens_of

_DEEPEST = 40
"""Brackets and commands within each other."""
_RELATIONS = frozenset(["=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\to", "\\sim", "\\propto", "\\subset"])
_SETS = frozenset(["\\cup", "\\cap", "\\bigcup", "\\bigcap"])
_SEPARATORS = frozenset([",", ";", ":", "&", "\\\\"])
_SUMS = frozenset(["+", "-", "\\pm"])
_PRODUCTS = frozenset(["*", "/"])
_MODULO = frozenset(["\\bmod", "\\mod", "\\pmod"])
_NO_PART = _RELATIONS | _SETS | _SEPARATORS | _SUMS | _PRODUCTS | _MODULO
_OPENERS = frozenset(["(", "{", "\\lfloor", "\\lceil"])
_CLOSERS = frozenset([")", "}", "\\rfloor", "\\rceil"])
_MARKS = (
    "overline bar vec hat widehat tilde dot ddot underline overrightarrow mathbb mathcal mathfrak boldsymbol bm pmb"
)
_DECORATED = frozenset(f"\\{name}" for name in _MARKS.split())
_SAME_FUNCTION = {"ln": "log", "lg": "log", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_OF_TERMS = frozenset(["sum", "prod", "int", "iint", "iiint", "oint", "lim"])
"""Functions of all that follows in the term."""
_UNITS = frozenset(["\\circ", "\\prime", "\\degree"])
_AND = frozenset(["or", "and"])


def parse_formula(text: str) -> Formula:
    """The tree of a formula. Raises FormError for one that is nested too deeply, or empty."""
    return parse_tokens(tokens_of(text))


def parse_tokens(tokens: Sequence[Token]) -> Formula:
    """The tree of a formula's tokens; brackets that stay open are closed at the end. Raises FormError."""
    if not tokens:
        raise FormError("no formula")
    reader = _Reader(tokens)
    try:
        parts = [reader.row()]
        while not reader.at_end:
            reader.take()  # A bracket that was never opened.
            parts.append(reader.row())
    except RecursionError:
        raise FormError("nested too deeply") from None
    parts = [part for part in parts if part != Formula("row")]
    found = parts[0] if len(parts) == 1 else Formula("row", tuple(parts))
    check_depth(found)
    return found


class _Reader:
    """Recursive descent; one method a level of precedence, lowest first."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at, self._depth, self._bars = tokens, 0, 0, 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _sees(self, texts: frozenset[str]) -> bool:
        return not self.at_end and self._tokens[self._at].text in texts and self._tokens[self._at].kind != "text"

    def _sees_kind(self, kind: str) -> bool:
        return not self.at_end and self._tokens[self._at].kind == kind

    @property
    def _closes(self) -> bool:
        return self.at_end or self._sees(_CLOSERS) or self._sees_kind("end")

    def row(self) -> Formula:
        """What commas, line ends, "or" separate."""
        parts: list[Formula] = []
        while not self._closes and not (self._bars and self._sees(frozenset("|"))):
            if self._sees(_SEPARATORS) or self._sees_word(_AND):
                self.take()
                continue
            parts.append(self._relation())
        return parts[0] if len(parts) == 1 else Formula("row", tuple(parts))

    def _sees_word(self, words: frozenset[str]) -> bool:
        return self._sees_kind("text") and self._tokens[self._at].text in words

    def _relation(self) -> Formula:
        sides = [] if self._sees(_RELATIONS) else [self._set()]
        signs = []
        while self._sees(_RELATIONS):
            signs.append(self.take().text)
            if not self._closes and not self._sees(_SEPARATORS):
                sides.append(self._set())
        return sides[0] if not signs and sides else Formula("relation", tuple(sides), " ".join(signs))

    def _set(self) -> Formula:
        parts = [self._sum()]
        signs = []
        while self._sees(_SETS):
            signs.append(self.take().text)
            parts.append(self._sum())
        return parts[0] if not signs else Formula("set", tuple(parts), " ".join(signs))

    def _sum(self) -> Formula:
        terms: list[Formula] = []
        while True:
            negative = False
            while self._sees(_SUMS):
                negative ^= self.take().text == "-"
            term = self._term()
            if term is not None and term.form == "sum" and not negative:
                terms.extend(term.parts)
            elif term is not None:
                terms.append(Formula("negative", (term,)) if negative else term)
            if not self._sees(_SUMS):
                break
        if not terms:
            if self._closes or self._sees(_SEPARATORS | _RELATIONS | _SETS | frozenset("|")):
                return Formula("row")
            return Formula("symbol", name=self.take().text)
        return joined("sum", terms)

    def _term(self) -> Formula | None:
        """Products and quotients, from left to right. None where nothing stands."""
        factors: list[Formula] = []
        unit = None
        while True:
            sign = self.take().text if self._sees(_PRODUCTS) else self._modulo()
            factor = self._factor()
            if factor is None:
                break
            if sign == "/" and factors:
                factors = [quotient_of(joined("product", factors), factor)]
            elif sign == "mod":
                factors = [Formula("function", (*factors, factor), "mod")]
            elif factor.form == "text":
                unit = factor
            elif not sign and factors and is_mixed(factors[-1], factor):
                top, bottom = factor.parts
                factors[-1] = Formula("number", name=f"{factors[-1].name} {top.name}/{bottom.name}")
            elif sign == "*" and factors and is_scientific(factors[-1], factor):
                power = factor.parts[1]
                name = f"-{power.parts[0].name}" if power.form == "negative" else power.name
                factors[-1] = Formula("number", name=f"{factors[-1].name}e{name}")
            else:
                multiply(factors, factor)
        return joined("product", factors) if factors else unit

    def _modulo(self) -> str:
        if not self._sees(_MODULO):
            return ""
        self.take()
        return "mod"

    def _factor(self) -> Formula | None:
        """A part with its powers, subscripts and factorials."""
        negative = False
        while self._at and self._sees(frozenset("-")) and self._tokens[self._at - 1].text in ("*", "/", "^"):
            self.take()
            negative = not negative
        found = self._part()
        while found is not None and not self.at_end:
            if self._sees(frozenset("^")):
                self.take()
                found = self._raised(found)
            elif self._sees(frozenset("_")):
                self.take()
                found = _with_subscript(found, self._argument())
            elif self._sees(frozenset("!")):
                self.take()
                found = Formula("function", (found,), "factorial")
            elif self._sees(frozenset(["%", "'"])):
                self.take()
            else:
                break
        return Formula("negative", (found,)) if negative and found is not None else found

    def _raised(self, base: Formula) -> Formula:
        if self._sees(_UNITS) or self._sees(frozenset(["'", "*"])):
            self.take()
            return base
        exponent = self._argument()
        is_unit = exponent.form == "symbol" and exponent.name in _UNITS
        return base if base.form == "text" or is_unit else Formula("power", (base, exponent))

    def _part(self) -> Formula | None:
        """A number, a name, a bracket, a command with its arguments. None where none stands."""
        if self._closes or self._sees(_NO_PART) or self._sees_word(_AND):
            return None
        if self._depth >= _DEEPEST:
            raise FormError("nested too deeply")
        self._depth += 1
        found = self._absolute() if self._sees(frozenset("|")) else self._token(self.take())
        self._depth -= 1
        return found

    def _token(self, token: Token) -> Formula:
        if token.kind == "number":
            return Formula("number", name=token.text)
        if token.kind == "text":
            return Formula("text", name=token.text)
        if token.kind == "name":
            return Formula("symbol", name=token.text)
        if token.kind == "begin":
            return self._matrix(token.text)
        if token.text in _OPENERS:
            return self._bracket(token.text)
        if token.kind == "command":
            return self._command(token.text)
        is_operator = unicodedata.category(token.text[0]) == "Sm"
        return Formula("function" if is_operator else "text", name=token.text)

    def _absolute(self) -> Formula | None:
        if self._bars:
            return None
        self.take()
        self._bars += 1
        inner = self.row()
        self._bars -= 1
        if not self._sees(frozenset("|")):  # One bar alone is a "such that".
            return inner
        self.take()
        return Formula("function", (inner,), "abs")

    def _bracket(self, opened: str) -> Formula:
        bars, self._bars = self._bars, 0
        inner = self.row()
        self._bars = bars
        if not self.at_end and self._sees(_CLOSERS):
            self.take()
        if opened in ("\\lfloor", "\\lceil"):
            return Formula("function", (inner,), opened[2:])
        return inner

    def _matrix(self, kind: str) -> Formula:
        inner = self.row()
        if self._sees_kind("end"):
            self.take()
        cells = inner.parts if inner.form == "row" else (inner,)
        matrix = Formula("matrix", cells)
        return Formula("function", (matrix,), "det") if kind.startswith("vmatrix") else matrix

    def _argument(self, *, digit: bool = False) -> Formula:
        r"""What stands in braces, or the next part alone: of `\frac12` a digit."""
        if digit and self._sees_kind("number") and len(self._tokens[self._at].text) > 1:
            text = self._tokens[self._at].text
            rest = [Token("number", text[1:]), *self._tokens[self._at + 1 :]]
            self._tokens = [*self._tokens[: self._at], *rest]
            return Formula("number", name=text[0])
        sign = self.take().text if self._sees(_SUMS) else ""
        found = self._part() or Formula("row")
        return Formula("negative", (found,)) if sign == "-" else found

    def _command(self, name: str) -> Formula:
        if name in ("\\frac", "\\binom"):
            top, bottom = self._argument(digit=True), self._argument(digit=True)
            return quotient_of(top, bottom) if name == "\\frac" else Formula("function", (top, bottom), "binom")
        if name == "\\sqrt":
            return self._root()
        if name in _DECORATED:
            inner = self._argument()
            return Formula("symbol", name=f"{name} {inner.name}") if inner.form in ("symbol", "text") else inner
        if name[1:] in FUNCTIONS:
            return self._function(name[1:])
        if self._sees(frozenset("{")):
            return Formula("function", (self._argument(),), name[1:])
        return Formula("symbol", name=name)

    def _root(self) -> Formula:
        index = Formula("number", name="2")
        if [token.text for token in self._tokens[self._at : self._at + 4 : 2]] == ["(", ")"]:
            following = self._tokens[self._at + 3 : self._at + 4]
            if following and following[0].text == "{":
                index = self._part() or index
        return Formula("root", (self._argument(), index))

    def _function(self, name: str) -> Formula:
        r"""With its power and subscript: `\sin^2 x`, `\log_2 8`."""
        exponent, parts = None, []
        while self._sees(frozenset("^_")):
            if self.take().text == "^":
                exponent = self._argument()
            else:
                parts.append(self._argument())
        if not self._closes and not self._sees(_SUMS - {"-"}):
            argument = self._term() if name in _OF_TERMS else self._factor()
            parts.append(argument or Formula("row"))
        name = _SAME_FUNCTION.get(name, name)
        if exponent == Formula("negative", (Formula("number", name="1"),)):
            return Formula("function", tuple(parts), f"arc{name}")
        if name == "exp":
            return Formula("power", (Formula("symbol", name="e"), *parts))
        found = Formula("function", tuple(parts), name)
        return found if exponent is None else Formula("power", (found, exponent))


def _with_subscript(found: Formula, subscript: Formula) -> Formula:
    """A name with a subscript is a name; anything else is a number in a base."""
    if found.form != "symbol":
        return Formula("function", (found, subscript), "base")
    return Formula("symbol", name=f"{found.name}_{subscript.name or repr(subscript)}")
