"""The number that a text gives as its answer. One that is taken back, left open or only a bound is none. Pure."""

import re
from fractions import Fraction

from headrace.services.reward.scorers.answers.answers import SEEN, AnswerOrigin, FoundAnswer, find_answer
from headrace.services.reward.scorers.answers.hedges import (
    behind_retraction,
    is_limited,
    is_open,
    is_side_by_side,
    knows_nothing,
    leaves_open,
    without_rejected,
)
from headrace.services.reward.scorers.answers.notation import plain_notation
from headrace.services.reward.scorers.answers.numbers import Number, numbers_in, read_number, same_number, without_chain

_ASIDE = re.compile(r"(?<=\w)\s\([^()]{0,80}=[^()]{0,80}\)\s*$")
_EQUALS = re.compile(r"(?<![<>!])=\s*$")
_OF_NUMBER = re.compile(r"\s+of\s+(?:the\s+)?\d")


def final_number(text: str) -> Fraction | None:
    """The number that a person would take for the text's answer (see `find_answer`), as it is written; or None."""
    text = behind_retraction(text)
    answer = find_answer(text)
    if answer is None:
        return None
    found = whole_number(answer) or number_in_prose(answer, text)
    return None if found is None else found.value


def whole_number(answer: FoundAnswer) -> Number | None:
    """The number that an answer is, with what belongs to it and nothing else."""
    if answer.place is AnswerOrigin.BOX:
        return read_number(answer.text)
    return read_number(_ASIDE.sub("", without_rejected(answer.text).rstrip("! ")))


def number_in_prose(answer: FoundAnswer, text: str) -> Number | None:
    """The one that an answer's words give; where they hold none, that of the last line before which has one."""
    is_stated = answer.place is not AnswerOrigin.LINE
    says, found = _given(answer.text, is_stated=is_stated)
    if says or answer.place in (AnswerOrigin.BOX, AnswerOrigin.MARK) or knows_nothing(answer.text):
        return found
    for line in reversed(text[-SEEN:].splitlines()):
        says, found = _given(line, is_stated=False)
        if says:
            return found
    return None


def _given(text: str, *, is_stated: bool) -> tuple[bool, Number | None]:
    """Whether a text gives a number or rejects an answer, and which number it gives.

    A stated answer gives its first number, if the statement begins with it; a sentence gives its last, or the first
    behind its last `=`.
    """
    kept = without_rejected(text)
    plain = plain_notation(kept).strip()
    if is_stated:
        plain = without_chain(plain)
    found = numbers_in(plain)
    if not found:
        return kept != text, None
    if is_stated and not re.search(r"[A-Za-z]{2}.*[:=]", plain[: found[0][1]]):
        at = 0
    else:
        equals = plain.rfind("=")
        at = next((index for index, (_, begin, _) in enumerate(found) if begin > equals >= 0), len(found) - 1)
    return True, None if _is_unclear(plain, found, at, is_stated=is_stated) else found[at][0]


def _is_unclear(text: str, found: list[tuple[Number, int, int]], at: int, *, is_stated: bool) -> bool:
    number, begin, end = found[at]
    is_result = _EQUALS.search(text[:begin]) is not None
    if is_limited("" if is_result else text[:begin], text[end:]):
        return True
    if number.scale < 1 and not is_result and _OF_NUMBER.match(text[end:]):
        return True
    before = found[at - 1] if at and not same_number(found[at - 1][0], number) else None
    behind = next((one for one in found[at + 1 :] if not same_number(number, one[0])), None)
    if before is not None and is_side_by_side(text[: before[1]], text[before[2] : begin], text[end:]):
        return True
    if behind is None:
        # An "or" with the same number in another spelling leaves nothing open.
        return at + 1 == len(found) and is_open(text[end:])
    between = text[end : behind[1]]
    return leaves_open(between) if is_stated else is_side_by_side(text[:begin], between, text[behind[2] :])
