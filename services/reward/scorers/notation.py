r"""One way to write what can be written in many: LaTeX's decorations, Unicode's signs, Markdown. Pure."""

import re

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00d7\u22c5\u00b7", "*"),
        **dict.fromkeys("\u2044\u00f7", "/"),
        **dict.fromkeys("\u00a0\u2009\u202f\u2248", " "),
        **dict.fromkeys("$\u20ac\u00a3\u00a5\u20b9", None),  # Currencies, and the fences of formulas.
    }
)
_VULGAR_FRACTIONS = {
    chr(0xBC): "1/4",
    chr(0xBD): "1/2",
    chr(0xBE): "3/4",
    chr(0x2153): "1/3",
    chr(0x2154): "2/3",
    chr(0x2155): "1/5",
    chr(0x215B): "1/8",
}
_VULGAR = re.compile("[" + "".join(_VULGAR_FRACTIONS) + "]")
_MINUS = re.compile(r"(?<![\w)])\u2013(?=[\d.$])|\bnegative\s+(?=[\d.$\\])", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?<![\w*)])(\*\*|__|[*_`])(?=\S)([^*_`\n]+?)(?<=\S)\1(?![\w*(])")
_FENCE = re.compile(r"\\[()\[\]]|\\(?:left|right|displaystyle|limits|bigl?|bigr|approx)(?![A-Za-z])")
_SPACE = re.compile(r"\\[,;: ]|\\q?quad(?![A-Za-z])|~")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|mbox|textrm)\s?\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dtc]?frac\s?(?:\{([^{}]+)\}\s?\{([^{}]+)\}|(\d)\s?(\d)|(\d)\s?\{([^{}]+)\})")
_DEGREES = re.compile(r"\s?\^?\s?\{?\\circ(?![A-Za-z])\}?|\u00b0")
_WRITTEN = re.compile(r"\s*[-+]?[\d.,]+\s*")


def plain_notation(text: str) -> str:
    r"""A text with its numbers as one types them: `\frac{3}{4}` is `3/4`, `\$1{,}800` is `1,800`, `**18**` is `18`."""
    text = _VULGAR.sub(lambda match: f" {_VULGAR_FRACTIONS[match.group()]}", _MINUS.sub("-", text.replace("\\$", "")))
    text = _EMPHASIS.sub(r"\2", text.translate(_SIGNS))
    if "\\" in text:
        text = text.replace("\\!", "").replace("\\%", "%").replace("\\times", "*").replace("\\cdot", "*")
        text = _TEXT.sub(r" \1 ", _SPACE.sub(" ", _FENCE.sub(" ", text)))
        text = _FRACTION.sub(_ratio, text)
    return _DEGREES.sub(" degrees", text.replace("{,}", ","))


def _ratio(match: "re.Match[str]") -> str:
    top, bottom = (part for part in match.groups() if part is not None)
    if _WRITTEN.fullmatch(top) and _WRITTEN.fullmatch(bottom):
        return f" {top.strip()}/{bottom.strip()}"
    return match.group()
