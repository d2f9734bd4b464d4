"""Formulas in text: whether there is one, where it stands, and as LaTeX. Pure."""

import re
from collections.abc import Callable

from headrace.services.reward.scorers.answers.notation import plain_notation, plain_powers

FENCED = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_ARITHMETIC = re.compile(
    r"""
      \d\s*(?:\*\*?|[+^!_])\s*[\w\\({]? | \d\s*-\s*[\d(\\] | \d\s*/\s*[\\(a-z](?![A-Za-z]) | \d\(
    | [)}]\s*[-+*/^] | (?<![A-Za-z])[A-Za-z]\s*[-+*^]\s*[\w(\\]
    | \\(?!text|circ|boxed)[A-Za-z] | \bsqrt\b | \bpi\b | [\u221a\u03c0\u221e]
    """,
    re.VERBOSE,
)
_NAMES = {"sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt", "pi", "inf", "infinity", "oo"}
_JOINTS = {"or", "and"}
_LISTED = re.compile(r"\s*(?:,|,?\s*(?:or|and))\s*")
_PROSE_BEHIND = re.compile(r"(?:[,;]|\s)\s*(?:because|since|where|which|for|as|when|so|if|by|from)\b.*$", re.DOTALL)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_WORDS = re.compile(r"[A-Za-z]+(?:[ '-][A-Za-z]+)*")
_MANY = 4
_LATEX: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\*\*"), "^"),
    (re.compile("\u221a\\(([^()]*)\\)|\\bsqrt\\(([^()]*)\\)"), lambda match: rf"\sqrt{{{match[1] or match[2]}}}"),
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
    (re.compile(r"^\$+|\$+$|^\\[(\[]|\\[)\]]$"), ""),
]


def has_formula(text: str) -> bool:
    """Whether more than numbers and words stand there."""
    return _ARITHMETIC.search(plain_notation(text)) is not None


def formula_in(line: str) -> str:
    """The last formula of a line: the last one in fences (with those that it is listed with), else what remains without
    the prose around it.
    """
    fenced = list(FENCED.finditer(line))
    if fenced:
        first = len(fenced) - 1
        while first and _LISTED.fullmatch(line[fenced[first - 1].end() : fenced[first].start()]):
            first -= 1
        return ", ".join(str(match[match.lastindex or 0]) for match in fenced[first:])
    line = without_reasons(line)
    ends = [word.end() for word in _WORD.finditer(line) if word.group().lower() not in _NAMES | _JOINTS]
    return line[ends[-1] if ends else 0 :].strip(" .,;:!'\u2019")


def without_reasons(line: str) -> str:
    """A line up to the first "because", "since", "where"..."""
    return _PROSE_BEHIND.sub("", line)


def as_latex(text: str) -> str:
    """A formula as people type it, in LaTeX."""
    text = plain_powers(text.strip())
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(".")


def is_words(text: str) -> bool:
    """Whether an answer is words, which a verifier would take for a product of letters."""
    plain = plain_notation(text).strip(" .")
    if not _WORDS.fullmatch(plain) or set(re.split(r"[ '-]", plain.lower())) & (_NAMES | _JOINTS):
        return False
    return "\\text" in text or len(plain) >= _MANY or plain.lower() in ("yes", "no")


def is_balanced(text: str) -> bool:
    """Whether every brace is closed, escaped ones aside."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0
