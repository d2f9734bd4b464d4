r"""The tokens of a formula, in LaTeX or as people type it; what only lays it out is dropped. Pure."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from headrace.services.reward.scorers.answers.notation import plain_thousands

Kind = Literal["number", "name", "command", "text", "begin", "end", "sign"]

_FUNCTIONS = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc asin acos atan log ln lg "
    "exp gcd lcm max min det lim limsup liminf sum prod int iint iiint oint sup floor ceil abs sgn sign sqrt arg deg "
    "tr rank mod bmod pmod Re Im"
)
FUNCTIONS = frozenset(_FUNCTIONS.split())
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\ufe63", "-"),
        **dict.fromkeys("\u00d7\u22c5\u00b7\u2219\u2022\u2217\u2a2f\u22c6", "*"),
        **dict.fromkeys("\u00f7\u2044\u2215", "/"),
        "\u221a": r"\sqrt ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u2248": r"\approx ",
        "\u222a": r"\cup ",
        "\u2229": r"\cap ",
        "\u2208": r"\in ",
        "\u2192": r"\to ",
        "\u21d2": r"\to ",
        "\u00b1": r"\pm ",
        "\u00b0": "",
    }
)
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b\u207f]+")
_SPACE = re.compile(r"(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~|\\phantom\s*\{[^{}]*\}")
_LAYOUT = (
    "left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle scriptstyle limits nolimits mathop "
    "mathbin mathrel mathord boxed fbox ensuremath hline small large tiny bf rm it"
)
_LAID_OUT = frozenset(_LAYOUT.split())
"""Commands that only set the layout."""
_TEXT = r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|operatorname\*?|mbox|hbox)\s*"
_TOKEN = re.compile(
    rf"""
    (?P<begin>\\begin\s*\{{[A-Za-z]+\*?\}}(?:\s*\{{[lcr|\s]*\}})?) | (?P<end>\\end\s*\{{[A-Za-z]+\*?\}})
  | {_TEXT}\{{(?P<text>[^{{}}]*)\}}
  | (?P<command>\\[A-Za-z]+)
  | (?P<number>\d{{1,3}}(?:,\d{{3}})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)
  | (?P<name>[A-Za-z]+)
  | (?P<sign>\*\*|\\.|[^\s.$?])
    """,
    re.VERBOSE | re.DOTALL,
)
_SAME = {
    **dict.fromkeys(("\\dfrac", "\\tfrac", "\\cfrac", "\\sfrac", "\\nicefrac"), "\\frac"),
    **dict.fromkeys(("\\dbinom", "\\tbinom"), "\\binom"),
    **dict.fromkeys(("\\cdot", "\\times", "\\ast", "\\star", "\\bullet", "\\cdotp"), "*"),
    **dict.fromkeys(("\\div", "\\over"), "/"),
    **dict.fromkeys(("\\lvert", "\\rvert", "\\vert", "\\mid", "\\|", "\\Vert", "\\lVert", "\\rVert"), "|"),
    **dict.fromkeys(("\\lbrace", "\\lbrack", "\\langle", "\\lgroup", "\\{"), "("),
    **dict.fromkeys(("\\rbrace", "\\rbrack", "\\rangle", "\\rgroup", "\\}"), ")"),
    **dict.fromkeys(("\\leq", "\\leqslant", "\\leqq"), "\\le"),
    **dict.fromkeys(("\\geq", "\\geqslant", "\\geqq"), "\\ge"),
    **dict.fromkeys(("\\neq", "\\not"), "\\ne"),
    **dict.fromkeys(("\\implies", "\\rightarrow", "\\Rightarrow", "\\Longrightarrow", "\\iff"), "\\to"),
    "\\lt": "<",
    "\\gt": ">",
    "\\approx": "=",
    "\\equiv": "=",
    "**": "^",
    "\\mp": "\\pm",
    "\\setminus": "\\cup",
    "\\%": "%",
}
_WORD = 4
"""Letters of a word, where fewer may be a product of variables."""
_SPLIT = re.compile("|".join(sorted((FUNCTIONS | {"pi"}), key=len, reverse=True)) + "|.")


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `text` is normalized, so that equal ones are spelled alike."""

    kind: Kind
    text: str


def tokens_of(text: str) -> tuple[Token, ...]:
    """What a formula consists of. Never fails: an unknown character is a sign."""
    text = plain_thousands(text).replace("{,}", "").replace("\\$", "")
    text = _RAISED.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match.group())}}}", text)
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)).translate(_SIGNS)
    found: list[Token] = []
    for match in _TOKEN.finditer(_SPACE.sub(" ", text)):
        found.extend(_tokens(match))
    return tuple(found)


def _tokens(match: "re.Match[str]") -> list[Token]:
    kind, said = match.lastgroup, match.group()
    if kind == "number":
        return [Token("number", said.replace(",", ""))]
    if kind == "text":
        return _of_words(match["text"])
    if kind == "name":
        return _of_name(said)
    if kind == "command":
        if said[1:] in _LAID_OUT:
            return []
        if said in _SAME:
            return [Token("sign" if len(_SAME[said]) == 1 else "command", _SAME[said])]
        return [Token("command", said)]
    if kind in ("begin", "end"):
        return [Token("begin" if kind == "begin" else "end", re.findall(r"[A-Za-z]+", said)[1])]
    if said in "[]":
        said = "(" if said == "[" else ")"
    return [Token("sign", _SAME.get(said, said))]


def _of_words(text: str) -> list[Token]:
    r"""`\text{...}`: words name what is counted, but what looks like a formula there is one."""
    word = text.strip()
    if word in FUNCTIONS:
        return [Token("command", f"\\{word}")]
    if re.search(r"\d|[-+*/^=!|]", word) and not re.fullmatch(r"[A-Za-z\s.,'-]*(?:\^?[23])?", word):
        return list(tokens_of(word))
    return [Token("text", word)] if word else []


def _of_name(name: str) -> list[Token]:
    """A word, a function, or variables side by side."""
    if name in FUNCTIONS or name == "pi":
        return [Token("command", f"\\{name}")]
    if name in ("or", "and") or len(name) >= _WORD:
        return [Token("text", name)]
    if name in ("inf", "oo"):
        return [Token("command", "\\infty")]
    parts = _SPLIT.findall(name)
    return [Token("command", f"\\{part}") if len(part) > 1 else Token("name", part) for part in parts]
