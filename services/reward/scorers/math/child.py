r"""What the math scorer's workers run: math-verify, with its own timeouts off. They cost more than its work; the pool
has its own.

Jobs: `{"gold": formula, "said": formula}` -> `{"readable": bool, "equal": bool, "why": text, "refusal": text}`.
`readable` is of the gold. Formulas are LaTeX, without fences. What a completion's formula does to the libraries is no
error: it is wrong, unless the gold does the same alone.
"""

import functools
import logging
import re
import threading
from collections.abc import Callable

import sympy
from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig

from headrace.services.reward.scorers.math.forms import is_worked_out
from headrace.services.reward.scorers.math.probe import same_number, surely_differ
from headrace.services.reward.scorers.math.size import TooLargeError, check_size

_READ = (LatexExtractionConfig(boxed_match_priority=-1),)
_READ_S = 5
_BY_PARSER = re.compile(r"\\(?:[dt]?binom|gcd|lcm|max|min|det|lfloor|lceil|bmod|pmod|mod)(?![A-Za-z])")
"""What the parser itself works out."""
_WARM = (
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"x^2+1", r"(x+1)^2-2x"),
    (r"\frac{\pi}{4}", r"\pi/4"),
    (r"[0,1)", r"(-\infty,2)\cup(3,\infty)"),
    (r"\{1,2\}", r"1,2"),
    (r"y=2x+1", r"x\le 3"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    (r"\sin^2 x", r"1-\cos^2 x"),
    (r"3+4i", r"e^{i\pi}"),
    (r"\log_2 8", r"\ln 2"),
    (r"5!", r"\binom{5}{2}"),
    (r"\sum_{k=1}^{3} k", r"6\text{ cm}^2"),
    (r"50\%", r"90^\circ"),
    (r"\sqrt[3]{2}", r"2^{1/3}"),
    (r"|x-1|", r"\int_0^1 x dx"),
)
"""Parsed once before the children are forked: the parser learns its tables from what it sees."""


def serve() -> Callable[[dict[str, str]], dict[str, object]]:
    """The function of a worker."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # It warns that its timeouts are off.
    for gold, said in _WARM:
        _answer({"gold": gold, "said": said})
    return _answer


def is_readable(formula: str) -> bool:
    """Whether math-verify reads it as mathematics. Bounded by math-verify itself, which only can on the main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    return _tree(formula, _READ_S if on_main else None) is not None


def _answer(job: dict[str, str]) -> dict[str, object]:
    gold = _read(job["gold"])
    if gold is None:
        return {"readable": False}
    try:
        return _compared(job["gold"], job["said"], gold)
    except Exception as error:  # The libraries may raise anything on what a policy writes.
        if job["gold"] == job["said"]:
            raise
        _compared(job["gold"], job["gold"], gold)
        return _wrong(f"cannot be read: {type(error).__name__}")


def _compared(wanted: str, formula: str, gold: sympy.Basic) -> dict[str, object]:
    if _BY_PARSER.search(formula) and not _BY_PARSER.search(wanted):
        return _wrong("is not worked out: unevaluated", "unevaluated")
    said = _read(formula)
    if said is None:
        return _wrong("is no formula")
    if said == gold:
        return {"readable": True, "equal": True, "why": "", "refusal": ""}
    try:
        check_size(said)
    except (TooLargeError, RecursionError) as error:
        if _fits(gold):
            return _wrong(f"is too large: {error}")
    if not is_worked_out(said, gold):
        return _wrong("is not worked out: unevaluated", "unevaluated")
    same = same_number(gold, said)
    # A percent sign may mean a hundredth, or nothing.
    if same is None and "%" not in wanted + formula and surely_differ(gold, said):
        same = False
    if same is None:
        same = bool(verify(gold, said, allow_set_relation_comp=True, timeout_seconds=None))
    return {"readable": True, "equal": same, "why": "" if same else "differs", "refusal": ""}


def _wrong(why: str, refusal: str = "") -> dict[str, object]:
    return {"readable": True, "equal": False, "why": why, "refusal": refusal}


@functools.lru_cache(maxsize=256)
def _read(formula: str) -> sympy.Basic | None:
    return _tree(formula, None)


def _tree(formula: str, seconds: int | None) -> sympy.Basic | None:
    """The formula as a sympy tree; None if it has none."""
    found = parse(f"${formula}$", _READ, parsing_timeout=seconds)
    tree = found[0] if found else None
    if isinstance(tree, sympy.MatrixBase):
        return tree.as_immutable()
    return None if isinstance(tree, str) else tree


def _fits(expression: object) -> bool:
    try:
        check_size(expression)
    except (TooLargeError, RecursionError):
        return False
    return True
