r"""Reads an answer key and a completion, and decides what a person sees at once: equal numbers, equal words, equal
formulas, and answers that are not worked out (see `forms`).

What remains goes to the verifier. Pure.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from headrace.services.reward.scorers.answers.answers import AnswerOrigin, FoundAnswer, find_answer
from headrace.services.reward.scorers.answers.final_number import number_in_prose, whole_number
from headrace.services.reward.scorers.answers.formulas import (
    formula_in,
    has_formula,
    is_balanced,
    is_words,
    without_reasons,
)
from headrace.services.reward.scorers.answers.hedges import behind_retraction, is_limited, is_negation, without_rejected
from headrace.services.reward.scorers.answers.notation import plain_notation
from headrace.services.reward.scorers.answers.numbers import Number, read_number, same_number
from headrace.services.reward.scorers.math.forms import is_worked_out, read_formula, same_form
from headrace.services.reward.scorers.math.prompt import is_restated

LONGEST = 1500
"""Characters of a formula; what is longer is no answer."""
_OPTION = re.compile(r"\(?([A-Z])(?:[).:]|\s[-\u2013]\s(?=[A-Z][a-z])|\s*$)(?!\s*(?:or|and|,|/|&)\s*\(?[A-Z]\b)")
_OPTIONS = re.compile(r"\(?[A-Z]\)?[.:]?(?:\s*(?:,?\s*or|,?\s*and|,|/|&)\s*\(?[A-Z]\)?[.:]?){0,9}\s*")
_OTHER_WORDS = re.compile(r"\b(?:or|and\s+maybe|maybe|perhaps|possibly)\b", re.IGNORECASE)
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_BASED = re.compile(r"([0-9A-Z]+)\s?_\s?(?:\{\s?(\d+)\s?\}|(\d+))|\b([0-9A-Z]+)\s\(?\s?(?:in\s)?base[\s-](\d+)")
_LEADS_TO = re.compile(r"=>?|->|\u2192|\u21d2|\\(?:implies|to|[rR]ightarrow)(?![A-Za-z])")
_SET = re.compile(r"[\s$]*(?:\\left)?\\\{.*\\\}[\s$]*", re.DOTALL)
_BECAUSE = re.compile(r"[,\s]\s*(?:because|since)\b", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>!:\\])=|\\(?:approx|to|implies|[rR]ightarrow)(?![A-Za-z])|\u2248|\u2192|\u21d2")
_TIME = re.compile(r"(\d{1,2}:\d\d)\s*(?:[ap]\.?m\.?|o'clock)?", re.IGNORECASE)

Refusal = Literal["", "restated", "unevaluated"]
"""Why an answer is wrong whatever its value: it stands in the prompt, or is left to be worked out."""


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """The answer that a row holds."""

    text: str
    bare: str
    """Without white space, decorations and case."""
    number: Number | None


@dataclass(frozen=True, slots=True)
class ExtractedAnswer:
    """The answer found in a completion."""

    text: str
    """For people."""
    equal: bool | None
    """Whether it is the key; None = only the verifier can decide."""
    formula: str = ""
    """For the verifier."""
    refusal: Refusal = ""


def read_key(value: object) -> ReferenceAnswer:
    r"""The answer of a row: text or a number, alone or at the end of a solution (`####`, `\boxed{}`).

    Raises ValueError for an answer that cannot be read.
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
    return ReferenceAnswer(text, bare(text), read_number(text))


def read_said(completion: str, key: ReferenceAnswer, prompt: str = "") -> ExtractedAnswer:
    """Extracts the completion's answer and compares it with the key, as far as that needs no verifier."""
    completion = behind_retraction(completion)
    answer = find_answer(completion)
    if answer is None:
        return ExtractedAnswer("nothing", False)
    if bare(answer.text) == key.bare:
        return ExtractedAnswer(answer.text, True)
    if key.number is not None:
        return _as_number(answer, completion, key, prompt)
    if not is_negation(key.text):
        answer = replace(answer, text=without_rejected(answer.text))
    base = _based(key.text)
    if base is not None and base[1] is not None:
        return ExtractedAnswer(answer.text, _based(answer.text) in (base, (base[0], None)))
    if bare(answer.text) == key.bare or _same_option(answer.text, key.bare) or _same_time(answer.text, key.text):
        return ExtractedAnswer(answer.text, True)
    if len(key.bare) == 1 and key.bare.isupper() and _OPTIONS.fullmatch(_last_words(answer.text)):
        return ExtractedAnswer(answer.text, re.findall("[A-Z]", _last_words(answer.text)) == [key.bare])
    if is_words(key.text):
        return ExtractedAnswer(answer.text, _says_words(answer, key))
    return _worked_out(_formula(answer, key), key, prompt)


def bare(text: str) -> str:
    """A text without what changes nothing: white space, decorations, case of words, brackets around one letter."""
    text = "".join(plain_notation(text).replace("\\dfrac", "\\frac").split()).rstrip(".")
    text = re.sub(r"\(([A-Za-z])\)", r"\1", text) if len(text) == len("(A)") else text
    return text.casefold() if text.isalpha() and len(text) > 1 else text


def _as_number(answer: FoundAnswer, completion: str, key: ReferenceAnswer, prompt: str) -> ExtractedAnswer:
    """Where the key is the number `key.number`."""
    wanted = key.number
    assert wanted is not None
    found = whole_number(answer)
    if found is None:
        kept = replace(answer, text=without_rejected(answer.text))
        base = _based(kept.text)
        if base is not None and base[1] is not None:
            return ExtractedAnswer(answer.text, False)
        if has_formula(_result(kept)):
            return _worked_out(_formula(kept), key, prompt)
        if answer.place is not AnswerOrigin.BOX:
            found = number_in_prose(answer, completion)
    if found is not None and not found.is_worked_out:
        return _stated_beside(answer.text, answer.text, wanted, prompt)
    return ExtractedAnswer(answer.text, found is not None and same_number(wanted, found))


def _worked_out(said: ExtractedAnswer, key: ReferenceAnswer, prompt: str) -> ExtractedAnswer:
    """Keeps the answer for the verifier, unless it is the question written again or not worked out."""
    if said.equal is not None:
        return said
    formula, wanted = read_formula(said.formula), read_formula(key.text) if key.number is None else None
    if key.number is not None:
        if formula is None or not is_worked_out(formula, None):
            return _stated_beside(said.text, said.formula, key.number, prompt)
        return said
    if formula is None or wanted is None or same_form(formula, wanted):
        return said
    if is_restated(said.formula, prompt, wanted):
        return ExtractedAnswer(said.text, False, refusal="restated")
    return said if is_worked_out(formula, wanted) else ExtractedAnswer(said.text, False, refusal="unevaluated")


def _stated_beside(text: str, formula: str, wanted: Number, prompt: str) -> ExtractedAnswer:
    """`18 = 2*9` counts by its worked-out number; `2*9` alone does not count."""
    sides = [read_number(side) for side in _EQUALS.split(formula)[:-1]]
    stated = [number for number in sides if number is not None and number.is_worked_out]
    if stated:
        return ExtractedAnswer(text, same_number(wanted, stated[-1]))
    return ExtractedAnswer(text, False, refusal="restated" if is_restated(formula, prompt) else "unevaluated")


def _result(answer: FoundAnswer) -> str:
    """What a chain of equations in prose comes to."""
    if answer.place is AnswerOrigin.BOX:
        return answer.text
    text = answer.text.rstrip("! ")
    return _LEADS_TO.split(text)[-1] or text


def _formula(answer: FoundAnswer, key: ReferenceAnswer | None = None) -> ExtractedAnswer:
    if answer.place in (AnswerOrigin.BOX, AnswerOrigin.MARK):
        formula = answer.text
    else:
        text = without_reasons(answer.text) if answer.place is AnswerOrigin.PHRASE else answer.text
        formula = formula_in(text)
        if formula and is_limited(text.rpartition(formula)[0].rstrip("$ "), ""):
            return ExtractedAnswer(answer.text, False)
    if not formula or len(formula) > LONGEST or not is_balanced(formula):
        return ExtractedAnswer(answer.text, False)
    if key is not None and _is_bracketed(key.text) and "," in formula and not re.search(r"[(\[\\]|<", formula):
        return ExtractedAnswer(answer.text, False)  # A point or an interval is no list.
    if key is not None and _is_bracketed(key.text) and _SET.fullmatch(formula):
        return ExtractedAnswer(answer.text, False)  # Nor is it a set.
    return ExtractedAnswer(answer.text, None, formula)


def _is_bracketed(text: str) -> bool:
    text = plain_notation(text).strip()
    return text.startswith("(") and text.endswith(")") and "," in text


def _based(text: str) -> tuple[str, str | None] | None:
    """A number and its base, of a key or an answer; the base may be left away where nothing else is given."""
    text = plain_notation(text).strip(" .")
    found = list(_BASED.finditer(text))
    if found:
        digits, braced, plain, in_words, base = found[-1].groups()
        return (digits or in_words), (braced or plain or base)
    return (text, None) if text.isalnum() else None


def _last_words(text: str) -> str:
    """What stands behind the verb of a sentence."""
    return re.sub(r"^.*\b(?:is|are|was|=)\s+", "", plain_notation(text), flags=re.DOTALL).strip()


def _same_time(said: str, key: str) -> bool:
    """7:30 PM where 7:30 is the key."""
    wanted, found = _TIME.fullmatch(plain_notation(key).strip()), _TIME.fullmatch(plain_notation(said).strip(" ."))
    return wanted is not None and found is not None and wanted[0] == wanted[1] == found[1]


def _same_option(said: str, key: str) -> bool:
    """(C), C) or "C. Paris" where C is the key."""
    matches = (_OPTION.match(text) for text in (plain_notation(said).strip(), _last_words(said)))
    return any(match is not None and match[1] == key for match in matches)


def _says_words(answer: FoundAnswer, key: ReferenceAnswer) -> bool:
    """In a sentence the words may stand behind its verb, or before a comma: "It is even, as ..."."""
    if answer.place is AnswerOrigin.BOX:
        return False
    lead = re.match(r"\W*([A-Za-z]+)[,.!;:]", answer.text)
    if lead is not None and key.bare in _OPPOSITES and lead[1].lower() in _OPPOSITES:
        return lead[1].lower() == key.bare and not re.search(rf"\b{_OPPOSITES[key.bare]}\b", answer.text, re.IGNORECASE)
    is_stated = answer.place is AnswerOrigin.PHRASE
    said = _last_words(without_reasons(answer.text) if is_stated else _BECAUSE.split(answer.text)[0])
    said = re.sub(r"^not\s[^,;.]*?\bbut\s+", "", said, flags=re.IGNORECASE)
    first, *others = re.split(r"[,;(/]|\s(?:because|since|as|for|not|rather\s+than|instead\s+of)\s", said)
    rest = said[len(first) :]
    if rest.startswith("/") or _OTHER_WORDS.match(rest.lstrip(" ,;(")) or re.search(r",\s*(?:or|and)\s+\w+\W*$", rest):
        return False
    if any(bare(other.rstrip(".! )")) == _OPPOSITES.get(key.bare) for other in others):
        return False
    return bare(first.rstrip(".! ")) == key.bare
