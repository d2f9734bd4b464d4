r"""Finds where a text states its answer, in a stated order (see docs/rewards.md), and what stands there. Pure."""

import re
from dataclasses import dataclass

from headrace.services.reward.scorer import Place
from headrace.services.reward.scorers.answers.labels import LABEL, LABEL_OR_SHORT

LONGEST = 1500
"""Characters of an answer; what is longer is none."""
_ENDS = LONGEST + 100
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:(?P<open>\{)|(?P<bare>[^\s{}$.,\\]+|\\[A-Za-z]+))")
_MARK = re.compile(r"####[ \t]*([^\n]*)")
_WORD = re.compile(r"[*_]*[A-Za-z]{2}")
_WRAPPED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_TRIES = 8
_SEEN = 20_000
"""Characters at the end of a text in which marks, labels and lines are looked for."""
_SIGNS = ' \t\r\n*_`$";'
_ANSWER = re.compile(r"<(/?)answer\s*>", re.IGNORECASE)
_TAG = re.compile("</?[A-Za-z][\\w-]{0,30}>|<[|\uff5c][\\w\u2581-]{1,40}[|\uff5c]>|\\[/?[A-Z]{3,20}\\]")
"""What chat templates and prompts put around an answer: a border, as the end of a line is."""
WIDE = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5C)} | {0x3002: ".", 0x3001: ","}
"""The signs of Chinese and Japanese, as others write them."""


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """What stands there, and where."""

    text: str
    place: Place


def find_answer(text: str, *, is_option: bool = False, place: Place = "") -> FoundAnswer | None:
    r"""The answer of a text: what the last closed `<answer>` holds, else the last closed `\boxed` or `\fbox`, else what
    the last `####` or the last label is followed by, else the last line; None if there is none of these.

    An `<answer>` that is not closed was cut off: what follows it is not a mark, label or line.

    `is_option`: an option is asked for, so `A:` is not a label. `place`: the only one to look at.
    """
    text = text.translate(WIDE)
    tagged = _tagged(text)
    opened = [] if tagged is not None else [tag.start() for tag in _ANSWER.finditer(text) if not tag[1]]
    lines = _TAG.sub("\n", text[: opened[-1] if opened else None][-_SEEN:])
    for one, found in (
        ("tag", tagged),
        ("box", last_boxed(text)),
        ("mark", _marked(lines)),
        ("label", _labelled(lines, is_option=is_option)),
        ("line", _last_line(lines)),
    ):
        if found is not None and place in ("", one):
            return FoundAnswer(bare_answer(found, is_option=is_option), one)  # type: ignore[arg-type]
    return None


def tagged_or_all(text: str) -> str:
    """What the last closed `<answer>` holds; the whole text if there is none."""
    found = _tagged(text)
    return text if found is None else found


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` that is closed, braces matched; None if there is none."""
    found, last = None, 0
    for match in list(_BOX.finditer(text))[-_TRIES:]:
        end = match.end() if match["bare"] else _closing(text, match.end())
        if end is not None and match.start() >= last:  # A box within a box is a part of it.
            found, last = match["bare"] or text[match.end() : end], end
    return found


def bare_answer(text: str, *, is_option: bool = False) -> str:
    """An answer without what is written around it: emphasis, fences, a box, a label of its own, the full stop."""
    for _ in range(_TRIES):
        before, text = text, _without_signs(text)
        box = _WRAPPED.match(text)
        if box is not None and _closing(text, box.end()) == len(text) - 1:
            text = text[box.end() : -1]
        label = (LABEL if is_option else LABEL_OR_SHORT).match(text)
        text = text[label.end() :] if label is not None else text
        if text == before:
            break
    return text


def _without_signs(text: str) -> str:
    text = text.strip(_SIGNS)
    for begin, end in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(begin) and text.rstrip(".").endswith(end):
            text = text.rstrip(".")[len(begin) : -len(end)]
    text = re.sub(r"[.,:](?:[*_`$]*)$", "", text) if not text.endswith("...") else text
    return text.strip(_SIGNS)


def _closing(text: str, begin: int) -> int | None:
    """Position of the brace that closes the one before `begin`."""
    depth, escaped = 1, False
    for position in range(begin, min(len(text), begin + _ENDS)):
        character = text[position]
        if escaped or character == "\\":
            escaped = not escaped
        else:
            depth += (character == "{") - (character == "}")
            if depth == 0:
                return position
    return None


def _tagged(text: str) -> str | None:
    begin, found = None, None
    for tag in _ANSWER.finditer(text):
        if begin is not None and tag[1]:
            found = _TAG.sub("\n", text[begin : tag.start()])
        begin = None if tag[1] else tag.end()
    return found


def _marked(text: str) -> str | None:
    """Behind the last `####`; one before words with text below them is Markdown's heading."""
    for match in reversed(list(_MARK.finditer(text))):
        if match[1].strip() and not (_WORD.match(match[1]) and text[match.end() :].strip()):
            return match[1]
    return None


def _labelled(text: str, *, is_option: bool) -> str | None:
    """Behind the last label on its line; where that is empty, the next line that is none."""
    found = list((LABEL if is_option else LABEL_OR_SHORT).finditer(text))
    # `A: 41` above another line may be an option and its text: two keys would be right.
    found = [label for label in found if LABEL.match(label[0]) or "\n" not in text[label.end() :].strip()]
    if not found:
        return None
    lines = text[found[-1].end() :].split("\n")
    return next((line for line in lines if line.strip(_SIGNS)), None)


def _last_line(text: str) -> str | None:
    return next((line for line in reversed(text.split("\n")) if line.strip()), None)
