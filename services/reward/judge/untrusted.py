"""Text that an attacker wrote, made safe to show to a judge. Pure.

A block's content can neither end its block nor look like a part of the conversation: every line of it begins with
`| `, no two angle brackets stand together (delimiters are made of three), what chat templates take for special tokens
is broken by a space, and invisible characters (controls, zero-width, direction marks, tags) become visible.
"""

import re
import unicodedata

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_UNUSUAL = re.compile(r"[^\n\t -~]+")
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters, marks and signs that show nothing."""
_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_OPEN = "<\uff1c\ufe64\u2039\u00ab\u27e8\u2329\u3008\u300a\u226a\u27ea\u02c2\u1438\u276e\u2770\u276c"
_CLOSE = ">\uff1e\ufe65\u203a\u00bb\u27e9\u232a\u3009\u300b\u226b\u27eb\u02c3\u1433\u276f\u2771\u276d"
"""Angle brackets and what looks like one."""
_BAR = "|\uff5c\u2502\u2223\u01c0"
_OPENING = re.compile(rf"([{_OPEN}])(?=[^\s=-])")
_CLOSING = re.compile(rf"([{_BAR}{_CLOSE}])(?=[{_CLOSE}])")
_SQUARE = r"\[\]\uff3b\uff3d"
_SQUARE_TAG = re.compile(
    rf"[{_SQUARE}](?=[~\uff5e])|[~\uff5e](?=[{_SQUARE}])|[\[\uff3b](?=[{_BAR}])"
    r"|[\[\uff3b](?=[ \t]{0,8}/?(\w{1,64})[ \t]{0,8}[\]\uff3d])",
    re.ASCII,
)
"""`]~b]`, `[e~[`, `[|user|]`; and one word between brackets, which is looked at. Bounds keep it linear."""
_SPECIAL_WORD = re.compile(r"[A-Z]{3}|^[A-Za-z].*\d$")
"""`[INST]`, `[/INST]`, `[TOOL_CALLS]`, `[gMASK]`, `[control_8]`, `[UNUSED_TOKEN_146]`."""


def block(name: str, text: str, key: str, most: int) -> str:
    """The text as a block of its own between delimiters that hold the key; at most `most` characters of it."""
    lines = capped(neutral(text), most).split("\n")
    content = "\n".join(f"| {line}" for line in lines)
    return f"<<<BEGIN {name} {key}>>>\n{content}\n<<<END {name} {key}>>>"


def neutral(text: str) -> str:
    """The text with nothing in it that a tokenizer, a template or a reader could take for something else."""
    text = _UNUSUAL.sub(_visible, _LINE_ENDS.sub("\n", text))
    text = _CLOSING.sub(r"\1 ", _OPENING.sub(r"\1 ", text))
    return _SQUARE_TAG.sub(_apart, text)


def capped(text: str, most: int) -> str:
    """Its head (two thirds) and its tail, if it has more than `most` characters; a note counts what is left out."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    left_out = len(text) - most
    return f"{text[:head]}\n[... {left_out} characters left out here ...]\n{text[len(text) - (most - head) :]}"


def _apart(found: re.Match[str]) -> str:
    word = found.group(1)
    return found.group() if word is not None and not _SPECIAL_WORD.search(word) else f"{found.group()} "


def _visible(found: re.Match[str]) -> str:
    """Hidden characters as a note, one for a row of them; odd spaces as spaces."""
    made: list[str] = []
    hidden: list[str] = []
    for sign in [*found.group(), ""]:
        if sign and _is_hidden(sign):
            hidden.append(sign)
            continue
        if hidden:
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            made.append(f"[hidden U+{ord(hidden[0]):04X}{more}]")
            hidden = []
        made.append(" " if sign and unicodedata.category(sign) == "Zs" else sign)
    return "".join(made)


def _is_hidden(sign: str) -> bool:
    """Controls, formats, surrogates, private and unassigned characters; fillers and variation selectors."""
    if unicodedata.category(sign)[0] == "C" or sign in _BLANKS:
        return True
    return any(first <= ord(sign) <= last for first, last in _SELECTORS)
