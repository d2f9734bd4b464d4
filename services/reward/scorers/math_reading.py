r"""What an answer key and a completion say, and what a person sees at once: equal numbers, equal words, equal formulas.

What remains goes to the verifier. Pure.
"""

import re
from dataclasses import dataclass
from typing import Any

from services.reward.scorers.answers import Answer, Place, find_answer
from services.reward.scorers.formulas import formula_in, has_formula, is_balanced, is_words
from services.reward.scorers.notation import plain_notation
from services.reward.scorers.numbers import Number, last_number, number_of, read_number, same_number

LONGEST = 1500
"""Characters of a formula; what is longer is no answer."""
_OPTION = re.compile(r"\(?([A-Z])(?:[).:]|\s*$)")


@dataclass(frozen=True, slots=True)
class Key:
    """The answer that a row holds."""

    text: str
    bare: str
    """Without white space, decorations and case."""
    number: Number | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a completion says."""

    text: str
    """For people."""
    equal: bool | None
    """Whether it is the key; None = only the verifier can tell."""
    formula: str = ""
    """For the verifier."""


def read_key(value: Any) -> Key:
    r"""The answer of a row: text or a number, alone or at the end of a solution (`####`, `\boxed{}`).

    Raises ValueError for what nobody could read.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"the answer is a {type(value).__name__}; text or a number is needed")
    text = str(value).strip()
    if "####" in text or "\\boxed" in text:
        found = find_answer(text)
        text = found.text if found is not None else ""
    if not text.strip("$ "):
        raise ValueError("the answer is empty")
    if len(text) > LONGEST:
        raise ValueError(f"the answer has {len(text)} characters; it must be the answer alone, or end in \\boxed{{}}")
    if not is_balanced(text):
        raise ValueError(f"the answer {text[:80]!r} has braces that do not match")
    return Key(text, bare(text), read_number(text))


def read_said(completion: str, key: Key) -> Said:
    """What the completion says, held against the key as far as a look can tell."""
    answer = find_answer(completion)
    if answer is None:
        return Said("nothing", False)
    if key.number is not None:
        return _as_number(answer, completion, key.number)
    if bare(answer.text) == key.bare or _same_option(answer.text, key.bare):
        return Said(answer.text, True)
    if is_words(key.text):
        return Said(answer.text, _says_words(answer, key))
    return _formula(answer)


def bare(text: str) -> str:
    """A text without what changes nothing: white space, decorations, case of words, brackets around one letter."""
    text = "".join(plain_notation(text).replace("\\dfrac", "\\frac").split()).rstrip(".")
    text = re.sub(r"\(([A-Za-z])\)", r"\1", text) if len(text) == len("(A)") else text
    return text.casefold() if text.isalpha() and len(text) > 1 else text


def _as_number(answer: Answer, completion: str, wanted: Number) -> Said:
    found = read_number(answer.text if answer.place is Place.BOX else answer.text.rstrip("! "))
    if found is None and has_formula(_result(answer)):
        return _formula(answer)
    if found is None:
        found = number_of(answer)
    if found is None and answer.place in (Place.PHRASE, Place.LINE):
        found = last_number(completion)
    return Said(answer.text, found is not None and same_number(wanted, found))


def _result(answer: Answer) -> str:
    """What a chain of equations in prose comes to."""
    if answer.place is Place.BOX:
        return answer.text
    text = answer.text.rstrip("! ")
    return text.rpartition("=")[2] or text


def _formula(answer: Answer) -> Said:
    formula = answer.text if answer.place in (Place.BOX, Place.MARK) else formula_in(answer.text)
    if not formula or len(formula) > LONGEST or not is_balanced(formula):
        return Said(answer.text, False)
    return Said(answer.text, None, formula)


def _same_option(said: str, key: str) -> bool:
    """(C), C) or "C. Paris" where C is the key."""
    match = _OPTION.match(plain_notation(said).strip())
    return match is not None and match[1] == key


def _says_words(answer: Answer, key: Key) -> bool:
    """In a sentence the words may stand behind its verb, or before a comma: "It is even, as ..."."""
    if answer.place is Place.BOX:
        return False
    said = re.sub(r"^.*\b(?:is|are|was|=)\s+", "", plain_notation(answer.text), flags=re.DOTALL)
    return bare(re.split(r"[,;(]|\s(?:because|since|as|for)\s", said.strip())[0].rstrip(".! ")) == key.bare
