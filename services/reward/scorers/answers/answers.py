r"""Finds where a text states its final answer: `####`, `\boxed{}`, "the answer is", the last line. Pure."""

import re
from dataclasses import dataclass
from enum import Enum

from headrace.services.reward.scorers.answers.hedges import is_negation

SEEN = 20_000
"""Characters at the end of a text in which phrases and lines are looked for."""
_MARK = re.compile(r"####\s*([^\n]*)")
_HEADING = re.compile(
    r"(?:step|part|solution|explanation|section|problem|question|analysis|conclusion|verification|check|"
    r"(?:final\s+)?answer)\b[^:\n]*(?::\s*|(?<=\d):.*)?|.*:|\d+\.\s+[A-Za-z].*",
    re.IGNORECASE,
)
"""Markdown's headings of the fourth level begin with the same sign."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:(?P<open>\{)|(?P<bare>[^\s{}$.,]+))")
_LONGEST = 4000
"""Characters of an answer: what is longer is none."""
_TRIES = 8
_LINE = 3000
"""Characters of a line or sentence that are read."""
_PHRASE = re.compile(
    r"""
    (?: \banswers?\b (?P<aside>[^\n.:=]{0,60}?)
        (?: \b(?:is|are|was|be|equals)\b 
            (?! \s+(?:not|never|wrong|incorrect|correct|right|clear|obvious)\b )
          | [:=] )
      | (?: ^ | \n ) [ \t]* A [ \t]* : )
    \s*+ [:=]?+ \s*+ (?=[^\n])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BOLD = re.compile(r"(?<![\w*])(\*\*|__)(?=\S)([^*_\n]+?)(?<=\S)\1(?![\w*])")
_TAG = re.compile(r"</?[A-Za-z_]{2,20}>|<\|[\w-]{1,30}\|>")
"""What chat templates and prompts put around an answer."""
_BULLET = re.compile(r"^[-*\u2022]\s+")
_SENTENCE = re.compile(r"[.!?](?=\s+[A-Z\"'(*]|\s*$)|;\s")


class AnswerOrigin(Enum):
    """Where an answer stands, the surest first."""

    MARK = "####"
    BOX = "boxed"
    PHRASE = "phrase"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """What stands there, and where."""

    text: str
    place: AnswerOrigin


def find_answer(text: str) -> FoundAnswer | None:
    r"""The final answer's place: behind the last `####`, in the last `\boxed{}`, behind "answer is" or "A:", else the
    last line. None for a text of white space.
    """
    marks = [mark for mark in map(str.strip, _MARK.findall(text)) if mark and not _HEADING.fullmatch(mark)]
    if marks:
        return FoundAnswer(_without_marks(marks[-1][:_LINE]), AnswerOrigin.MARK)
    boxed = last_boxed(text)
    if boxed is not None:
        return FoundAnswer(boxed.strip(), AnswerOrigin.BOX)
    end = _without_marks(text[-SEEN:])
    phrases = [phrase for phrase in _PHRASE.finditer(end) if not is_negation(f"{phrase['aside'] or ''} ")]
    if phrases:
        rest, _, _ = end[phrases[-1].end() :].partition("\n")
        return FoundAnswer(_first_sentence(rest[:_LINE]), AnswerOrigin.PHRASE)
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    return FoundAnswer(_BULLET.sub("", lines[-1][-_LINE:]), AnswerOrigin.LINE) if lines else None


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` that is closed, braces matched; None if there is none."""
    for match in reversed(list(_BOX.finditer(text))[-_TRIES:]):
        if match["bare"]:
            return match["bare"]
        end = _closing(text, match.end())
        if end is not None:
            return text[match.end() : end]
    return None


def _closing(text: str, begin: int) -> int | None:
    """Position of the brace that closes the one before `begin`."""
    depth, escaped = 1, False
    for position in range(begin, min(len(text), begin + _LONGEST)):
        character = text[position]
        if escaped or character == "\\":
            escaped = not escaped
        else:
            depth += (character == "{") - (character == "}")
            if depth == 0:
                return position
    return None


def _without_marks(text: str) -> str:
    return _BOLD.sub(r"\2", _TAG.sub("", text))


def _first_sentence(text: str) -> str:
    """The first one that is no question, else the last."""
    for _ in range(_TRIES):
        end = _SENTENCE.search(text)
        if end is None:
            break
        if end.group()[0] != "?" or not text[end.end() :].strip():
            return text[: end.start()].strip()
        text = text[end.end() :]
    return text.strip()
