"""Whether an answer is a formula that stands in its prompt: the question written again. Pure."""

import functools
import re

from headrace.services.reward.scorers.answers.formulas import FENCED
from headrace.services.reward.scorers.math.forms import has_operator, read_formula, result_of
from headrace.services.reward.scorers.math.formula import Formula, parts_of
from headrace.services.reward.scorers.math.tokens import Token, tokens_of

_SEEN = 20_000
"""Characters at the end of a prompt that are read."""
_LONGEST = 1500
"""Characters of a formula in it."""
_EQUALS = re.compile(r"(?<![<>!])=")
_TYPED = re.compile(
    r"(?:\\[A-Za-z]+|\d[\d.,]*|(?<![A-Za-z])(?:[A-Za-z]|sqrt|sin|cos|tan|log|ln|pi|gcd|lcm|max|min)(?![A-Za-z])"
    "|[-\u2212+*/^_!|=(){}\\[\\]\u00d7\u00f7\u00b7\u221a\u03c0\u00b2\u00b3 ])+"
)
"""What looks like a formula among words."""


def is_restated(said: str, prompt: str, wanted: Formula | None = None) -> bool:
    """Whether a formula with an operator stands in the prompt, spelled as it is or in another order of terms.

    Of an equation only what it comes to counts, unless an equation is wanted.
    """
    formula = read_formula(said)
    whole = wanted is not None and wanted.form == "relation" and formula is not None and formula.form == "relation"
    if formula is None or not prompt or not has_operator(formula, whole=whole):
        return False
    text, formulas = _read(prompt)
    result = _EQUALS.split(said)[-1] if not whole else said
    return formula in formulas or result_of(formula) in formulas or _spelled(tokens_of(result)) in text


@functools.lru_cache(maxsize=64)
def _read(prompt: str) -> tuple[str, frozenset[Formula]]:
    """A prompt's tokens as one text, and its formulas with their parts."""
    prompt = prompt[-_SEEN:]
    pieces = [str(match[match.lastindex or 0]) for match in FENCED.finditer(prompt)]
    pieces += [match.group() for match in _TYPED.finditer(FENCED.sub(" . ", prompt))]
    trees = (read_formula(piece) for piece in pieces if len(piece) <= _LONGEST)
    return _spelled(tokens_of(prompt)), frozenset(part for tree in trees if tree is not None for part in parts_of(tree))


def _spelled(tokens: tuple[Token, ...]) -> str:
    """A text in which what is equal is spelled alike, with a mark between any two tokens."""
    return "".join(f"\x00{token.text}" for token in tokens if token.text not in ("{", "}")) + "\x00"
