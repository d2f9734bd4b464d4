r"""One way to write what can be written in many: LaTeX's decorations, Unicode's signs, Markdown, intervals. Pure."""

import re
import unicodedata
from collections.abc import Callable

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00d7\u22c5\u00b7", "*"),
        **dict.fromkeys("\u2044\u00f7", "/"),
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        "\u2248": "=",
        **dict.fromkeys("$\u20ac\u00a3\u00a5\u20b9", None),  # Currencies, and the fences of formulas.
    }
)
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e]")
_RAISED = re.compile("(?<=[\\d)])[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_MINUS = re.compile(
    r"(?<![\w)])\u2013(?=[\d.$])|(?<=[=:]\s)\u2013(?=\s?[\d.$])|\bnegative\s+(?=[\d.$\\])", re.IGNORECASE
)
_EMPHASIS = re.compile(r"(?<![\w*)])(\*\*|__|[*_`])(?=\S)([^*_`\n]+?)(?<=\S)\1(?![\w*(])")
_GROUPS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:(?:\\[,;:! ]|~|\{,\}|[\u00a0\u2009\u202f'_])\d{3})+(?![\d'_])")
"""Thousands."""
_FENCE = re.compile(r"\\[()\[\]]|\\(?:left|right|displaystyle|limits|bigl?|bigr)(?![A-Za-z])")
_SPACE = re.compile(r"\\[,;: ]|\\q?quad(?![A-Za-z])|~")
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|mbox|textrm)\s?\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_FRACTION = re.compile(r"\\[dtc]?frac\s?(?:\{([^{}]+)\}\s?\{([^{}]+)\}|(\d)\s?(\d)|(\d)\s?\{([^{}]+)\})")
_REPEATING = re.compile(r"(?<!\d)(\d{0,12})\.(\d{0,12})\\(?:overline|bar|dot)\s?(?:\{(\d{1,12})\}|(\d))")
_DEGREES = re.compile(r"\s?(?:\^?\s?\{?\\circ(?![A-Za-z])\}?|\u00b0)\s?([CF]\b)?")
_SCALES = {None: " degrees", "C": " celsius", "F": " fahrenheit"}
_WRITTEN = re.compile(r"\s*[-+]?[\d.,]+\s*")
_SPACES = re.compile(r"[ \t]{2,}")


def plain_notation(text: str) -> str:
    r"""A text with its numbers as one types them: `\frac{3}{4}` is `3/4`, `\$1{,}800` is `1,800`, `**18**` is `18`."""
    text = plain_thousands(text)
    text = _VULGAR.sub(lambda match: f" {_compatible(match.group())}", _MINUS.sub("-", text.replace("\\$", "")))
    text = _EMPHASIS.sub(r"\2", plain_powers(text).translate(_SIGNS))
    if "\\" in text:
        text = text.replace("\\!", "").replace("\\%", "%").replace("\\times", "*").replace("\\cdot", "*")
        text = _TEXT.sub(r" \1 ", _SPACE.sub(" ", _FENCE.sub(" ", text.replace("\\approx", "="))))
        text = _FRACTION.sub(_ratio, _REPEATING.sub(_repeating, text))
    return _SPACES.sub(" ", _DEGREES.sub(lambda match: _SCALES[match[1]], text.replace("{,}", ",")))


def plain_thousands(text: str) -> str:
    r"""A text with the thousands of its numbers together: `1\,800` and `1{,}800` are `1800`."""
    return _GROUPS.sub(lambda match: re.sub(r"\D", "", match.group()), text)


def plain_powers(text: str) -> str:
    """A text with the small raised digits after its numbers as powers; those after a unit stay."""
    return _RAISED.sub(lambda match: f"^{{{_compatible(match.group())}}}", text)


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("\u2044", "/").replace("\u2212", "-")


def _ratio(match: "re.Match[str]") -> str:
    top, bottom = (part for part in match.groups() if part is not None)
    if not (_WRITTEN.fullmatch(top) and _WRITTEN.fullmatch(bottom)):
        return match.group()
    top, bottom = top.strip(), bottom.strip()
    if bottom.startswith("-"):  # 1/-2 is written -1/2.
        top, bottom = (top[1:] if top.startswith("-") else f"-{top}"), bottom[1:]
    behind = match.string[match.start() - 1 : match.start()]
    if behind == "-" and top.startswith("-"):
        return match.group()
    return f" {top}/{bottom}" if behind.isdigit() else f"{top}/{bottom}"


def _repeating(match: "re.Match[str]") -> str:
    """0.1(6) is (16 - 1) / 90."""
    whole, before, again = match[1], match[2], match[3] or match[4]
    top = int(whole + before + again) - int(whole + before or "0")
    return f"{top}/{10 ** len(before) * (10 ** len(again) - 1)}"


_EMPTY = (
    r"\\emptyset|\\varnothing|\\O(?![A-Za-z])|\u2205|\\?\{\s*\\?\}|(?:the )?empty set|\u65e0\u89e3"
    r"|(?:there (?:is|are) )?no (?:real )?solutions?(?: exists?)?"
)
NOTATIONS: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(rf"\s*(?:\\text\{{)?\s*(?:{_EMPTY})\s*\}}?\s*", re.IGNORECASE), r"\\emptyset"),
    (re.compile(r"\]([^\[\]]+,[^\[\]]+)\["), r"(\1)"),
    (re.compile(r"\]([^\[\]]+,[^\[\]]+)\]"), r"(\1]"),
    (re.compile(r"\[([^\[\]]+,[^\[\]]+)\["), r"[\1)"),
    (re.compile(r"^\s*[A-Za-z]\s*(?:\\in(?![A-Za-z])|\u2208)\s*"), ""),
]
"""Notations for one thing, each with the one that the verifier reads: no solution, intervals in the other style."""
_TYPED: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\\text\s?\{\s*(or|and)\s*\}|\b(?:or|and)\b"), ","),
    (re.compile(r"\*\*"), "^"),
    (
        re.compile("\u221a\\(([^()]*)\\)|(?<!\\\\)\\bsqrt\\(([^()]*)\\)"),
        lambda match: rf"\sqrt{{{match[1] or match[2]}}}",
    ),
    (re.compile("\u221a\\s?(\\w+)"), r"\\sqrt{\1}"),
    (re.compile(r"\u03c0|(?<![\\A-Za-z])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"\u221e|(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])"), r"\\infty "),
    (re.compile(r"\u2264|<="), r"\\le "),
    (re.compile(r"\u2265|>="), r"\\ge "),
    (re.compile(r"\u222a"), r"\\cup "),
    (re.compile(r"\u2229"), r"\\cap "),
    (re.compile(r"\u2212"), "-"),
    (re.compile(r"\u00b7|\u22c5|\u00d7"), r"\\cdot "),
    (re.compile(r"\u00b2"), "^2"),
    (re.compile(r"\u00b3"), "^3"),
    (re.compile(r"(?<!\\)%"), r"\\%"),
    (re.compile(r"\$"), ""),
]


def one_notation(text: str) -> str:
    """An answer in the notation that the verifier reads, where there are several for one thing."""
    for position, (pattern, replacement) in enumerate(NOTATIONS):
        if position or pattern.fullmatch(text):
            text = pattern.sub(replacement, text)
    return text


def as_latex(text: str) -> str:
    """A formula as people type it, in LaTeX."""
    text = plain_powers(one_notation(text.strip()))
    for pattern, replacement in _TYPED:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(".")
