r"""Reads an answer key and a completion, and decides what needs no verifier: numbers, options, words, equal texts.

What remains goes to the verifier. Pure.
"""

import re
from dataclasses import dataclass
from typing import Literal

from headrace.services.reward.scorer import Place
from headrace.services.reward.scorers.answers.answers import LONGEST, bare_answer, find_answer
from headrace.services.reward.scorers.answers.keys import key_text
from headrace.services.reward.scorers.answers.notation import as_latex, one_notation, plain_notation
from headrace.services.reward.scorers.answers.numbers import Number, read_number, read_ratio, same_number
from headrace.services.reward.scorers.answers.units import FUNCTIONS, NO_UNIT, Unit, read_unit
from headrace.services.reward.scorers.math.prompt import is_restated, tokens_of

_OPTION = re.compile(r"\(?([A-Z])\)?[.:]?")
_OTHER_OPTION = r"\([A-Za-z]\)|\b[A-Za-z][.)](?:\s|$)|\b(?!I\b|A\s[a-z])[A-Z]\b|(?:\bor|\band|/)\s*\(?[A-Za-z]\b(?!\w)"
_OPTION_WITH_TEXT = re.compile(
    rf"(?:\(([A-Z])\)[.:]?|([A-Z])[.)]|([A-Z])\s+[-\u2013]|([A-Z]),)\s+(?!.*(?:{_OTHER_OPTION})).+", re.DOTALL
)
_BASED = re.compile(r"([0-9A-Z]+)_(\d+)")
_TAIL = re.compile(
    r"(?P<unit>(?:\\[,;: ]|\s)*\\(?:text|mathrm|mbox)\s?\{(?!\s*(?:or|and)\s*\})[^{}]*\}(?:\^\{?[23]\}?)?"
    r"|(?<=[\w})])\s+[A-Za-z]{2,}(?:[ /][A-Za-z]+)?(?:\^\{?[23]\}?)?)\s*$"
)
_COMMAND = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}|\\(?:text|mathrm|mbox|operatorname)\s?\{[^{}]*\}|\\[A-Za-z]+|_\{?[A-Za-z]+\}?"
)
_NAMES = frozenset(["or", "and", "pi", "inf", "infinity", "oo", "sqrt", *FUNCTIONS])
_WORDS = re.compile(r"[^\W\d_]+(?:[ '\u2019-][^\W\d_]+)*")
_LONG_WORD = 4
_MOST_WORDS = 6

Refusal = Literal["", "no_answer", "restated", "unevaluated"]
"""Why an answer is wrong regardless of its value: it is missing, restates the prompt, or is left to be worked out."""


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """The answer that a row holds."""

    text: str
    bare: str
    """Without white space, decorations and case."""
    number: Number | None
    option: str
    """The letter, where it is one of several options."""
    formula: str
    """In LaTeX, without its unit."""
    unit: Unit


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
    r"""The answer of a row: text or a number, alone or at the end of a solution (`####`, `\boxed{}`, `<answer>`).

    Raises ValueError for an answer that cannot be read.
    """
    text = key_text(value)
    if len(text) > LONGEST:
        raise ValueError(f"the answer has {len(text)} characters; it must be the answer alone, or end in \\boxed{{}}")
    if not is_balanced(text):
        raise ValueError(f"the answer {text[:80]!r} has braces that do not match")
    option = _OPTION.fullmatch(bare_answer(plain_notation(text), is_option=True))
    formula, unit = _without_unit(bare_answer(text, is_option=True))
    number = read_number(text, text)
    return ReferenceAnswer(text, bare(text), number, option[1] if option else "", as_latex(formula), unit)


def read_said(completion: str, key: ReferenceAnswer, prompt: str = "", place: Place = "") -> ExtractedAnswer:
    """Extracts the completion's answer and compares it with the key, as far as that needs no verifier."""
    answer = find_answer(completion, is_option=bool(key.option), place=place)
    if answer is None or not answer.text or len(answer.text) > LONGEST:
        return ExtractedAnswer("nothing", False, refusal="no_answer")
    text = answer.text
    if bare(text) == key.bare:
        return ExtractedAnswer(text, True)
    if key.option:
        return _one_of_options(text, key)
    if key.number is not None:
        return _number(text, key.number, prompt)
    ratio, based = read_ratio(key.text, key.text), _BASED.fullmatch(key.bare)
    if ratio is not None:
        said, number = read_ratio(text, prompt), read_number(text, prompt)
        if said is not None:
            return ExtractedAnswer(text, said[0] == ratio[0] and ratio[1].is_met_by(said[1]))
        terms = ratio[0] if len(ratio[0]) == 2 and ratio[0][1] else None
        return ExtractedAnswer(text, bool(terms and number and number.value * terms[1] == terms[0]))
    if based is not None:
        return ExtractedAnswer(text, re.sub(r"\((?:in)?base(\d+)\)", r"_\1", bare(text)) in (key.bare, based[1]))
    if is_words(key.text):
        is_short = _WORDS.fullmatch(plain_notation(text)) and len(text.split()) <= _MOST_WORDS
        return ExtractedAnswer(text, False, refusal="" if is_short else "no_answer")
    return _formula(text, key, prompt)


def bare(text: str) -> str:
    """A text without what changes nothing: white space, decorations, case of words, brackets around one letter."""
    text = one_notation(bare_answer(text, is_option=True).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac"))
    text = re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", plain_notation(text).strip())  # `3 1/2` is not `31/2`.
    text = re.sub(r"_\{(\w+)\}", r"_\1", text).rstrip(".")
    text = re.sub(r"\(([A-Za-z])\)", r"\1", text) if len(text) == len("(A)") else text
    return text.casefold() if text.replace(" ", "").isalpha() and len(text) > 1 else text


def is_words(text: str) -> bool:
    """Whether an answer is words, which a verifier would take for a product of letters."""
    plain = plain_notation(bare_answer(text)).strip(" .")
    if not _WORDS.fullmatch(plain) or set(re.split(r"[ '-]", plain.lower())) & _NAMES:
        return False
    return "\\text" in text or len(plain) >= _LONG_WORD or plain.lower() in ("yes", "no") or not plain.isascii()


def is_balanced(text: str) -> bool:
    """Whether every brace is closed, escaped ones aside."""
    depth, escaped = 0, False
    for character in text:
        if escaped or character == "\\":
            escaped = not escaped
            continue
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _one_of_options(text: str, key: ReferenceAnswer) -> ExtractedAnswer:
    """C, (C), C. or "C. Paris" where C is the key, and no other letter stands beside it."""
    plain = plain_notation(text).strip()
    found = _OPTION.fullmatch(plain) or _OPTION_WITH_TEXT.fullmatch(plain)
    if found is None:
        return ExtractedAnswer(text, False, refusal="no_answer")
    return ExtractedAnswer(text, found[found.lastindex or 0] == key.option)


def _number(text: str, wanted: Number, prompt: str) -> ExtractedAnswer:
    """Where the key is a number the answer is one, written out: what is left to be worked out is none."""
    found = read_number(text, prompt)
    if found is not None and found.is_worked_out:
        return ExtractedAnswer(text, same_number(wanted, found))
    if found is None and not _is_formula(text):
        return ExtractedAnswer(text, False, refusal="no_answer")
    return ExtractedAnswer(text, False, refusal="restated" if is_restated(text, prompt) else "unevaluated")


def _formula(text: str, key: ReferenceAnswer, prompt: str) -> ExtractedAnswer:
    formula, unit = _without_unit(text)
    if not _is_formula(formula):
        return ExtractedAnswer(text, False, refusal="no_answer")
    if not key.unit.is_met_by(unit) or (key.unit.powers and key.unit.factor != unit.factor):
        return ExtractedAnswer(text, False)
    formula = as_latex(formula)
    if "," in formula and "," in key.formula and _is_bracketed(key.formula) != _is_bracketed(formula):
        return ExtractedAnswer(text, False)  # A point or an interval is neither a list nor a set.
    if tokens_of(formula) != tokens_of(key.formula) and is_restated(formula, prompt, whole="=" in key.formula):
        return ExtractedAnswer(text, False, refusal="restated")
    return ExtractedAnswer(text, None, formula)


def _is_formula(text: str) -> bool:
    """Whether it is nothing but a formula: no words beside it, every brace closed."""
    words = re.findall(r"[^\W\d_]{2,}", _COMMAND.sub(" ", text))
    return (
        bool(text)
        and is_balanced(text)
        and not any(len(word) >= _LONG_WORD - 1 and word not in _NAMES for word in words)
    )


def _is_bracketed(text: str) -> bool:
    text = text.replace("\\left", "").replace("\\right", "").strip()
    return (text[:1] in ("(", "[") and text[-1:] in (")", "]") and "," in text) or "\\cup" in text or "begin" in text


def _without_unit(text: str) -> tuple[str, Unit]:
    r"""A formula and the unit in `\text{}` at its end."""
    tail = _TAIL.search(text)
    unit = None if tail is None else read_unit(" " + plain_notation(tail["unit"]), tail["unit"])
    if tail is None or unit is None or not (unit.powers or "\\" in tail["unit"]):
        return text, NO_UNIT
    return text[: tail.start()], unit
