"""Whether an answer is a formula that stands in its prompt: the question written again. Pure."""

import functools
import re
from collections import Counter

from headrace.services.reward.scorers.answers.notation import as_latex

_SEEN = 20_000
"""Characters at the end of a prompt that are read."""
_LAYOUT = r"\\(?:left|right|displaystyle|cdot|times|[,;:! ]|q?quad)(?![A-Za-z])|\*|[{}()\[\]$~\s]"
_TOKEN = re.compile(rf"(?P<layout>{_LAYOUT})|\\[A-Za-z]+|\d+(?:[.,]\d+)*|[A-Za-z]|.", re.DOTALL)
_BARE = re.compile(r"(\\[dt]?(?:frac|binom))\s*(\d)\s*(\d)")
"""`\\frac12`."""
_SAME = {
    "\\dfrac": "/",
    "\\tfrac": "/",
    "\\frac": "/",
    "\\div": "/",
    "\\le": "<",
    "\\leq": "<",
    "\\ge": ">",
    "\\geq": ">",
}
_OPERATORS = frozenset("+-*/^!_|=<>") | {"\\sqrt", "\\binom", "\\pm"}


def is_restated(said: str, prompt: str, *, whole: bool = False) -> bool:
    """Whether a formula with an operator stands in the prompt, as it is or with its terms in another order.

    Of an equation only what it comes to counts, unless `whole`: an equation is wanted.
    """
    tokens = _tokens(as_latex(said) if whole else as_latex(said).rpartition("=")[2])
    if not any(token in _OPERATORS or (len(token) > 2 and token[0] == "\\") for token in tokens):
        return False
    missing, seen = Counter(tokens), _prompt_tokens(prompt[-_SEEN:])
    wrong = len(missing)
    for place, token in enumerate(seen):
        for one, change in ((token, -1), (seen[place - len(tokens)] if place >= len(tokens) else None, 1)):
            if one is not None:
                wrong -= missing[one] != 0
                missing[one] += change
                wrong += missing[one] != 0
        if not wrong:
            return True
    return False


def tokens_of(formula: str) -> tuple[str, ...]:
    """What a formula consists of, sorted; brackets, signs of multiplication and layout aside."""
    return tuple(sorted(_tokens(formula)))


@functools.lru_cache(maxsize=64)
def _prompt_tokens(prompt: str) -> tuple[str, ...]:
    return _tokens(as_latex(prompt))


def _tokens(text: str) -> tuple[str, ...]:
    found = (match for match in _TOKEN.finditer(_BARE.sub(r"\1 \2 \3", text)) if match["layout"] is None)
    return tuple(_SAME.get(match.group(), match.group()) for match in found)
