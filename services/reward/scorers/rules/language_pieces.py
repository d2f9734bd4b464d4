"""A text in pieces of one script, each long enough to detect its language. Pure."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_CODE = r"```.*?```"
_ADDRESS = r"\\[A-Za-z]+|https?://\S+"
_SHORT = r"```.*\Z|`[^`\n]*`|\$\$[^$]*\$\$|\$[^$\n]*\$|\\\([^\n]{0,500}?\\\)|\\\[[^\]]{0,1000}\\\]"
_NO_LANGUAGE = re.compile(rf"(?P<code>{_CODE})|(?P<short>{_SHORT})|{_ADDRESS}", re.DOTALL)
_OF_FORMULAS = {"LATIN", "GREEK", ""}
"""Scripts whose letters code and formulas need."""
_SENTENCE = re.compile(r"[^\n.!?\u3002\uff01\uff1f]+")
_LONG = 100_000
"""Characters that are looked at: the first half and the last of a longer text."""
_ENOUGH = {"CJK": 8, "HANGUL": 12}
_ENOUGH_LETTERS = 60
_SAME = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "FULLWIDTH": "LATIN"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one script."""

    script: str
    """As Unicode calls it; Chinese and Japanese are CJK."""
    text: str
    letters: int


def pieces(text: str) -> list[Piece]:
    """The parts of a text that are in some language; sentences of a script are joined until they are long enough.

    Code in closed fences is in none. In formulas, inline code and an unclosed fence only letters of scripts that
    those do not need are: no text hides there.
    """
    done: dict[str, list[list[str]]] = {}
    for sentence in _SENTENCE.findall(_NO_LANGUAGE.sub(_foreign, _seen(text))):
        for script, run in _runs(sentence):
            of_script = done.setdefault(script, [[]])
            if _letters(of_script[-1]) >= _ENOUGH.get(script, _ENOUGH_LETTERS):
                of_script.append([])
            of_script[-1].append(run)
    for script, of_script in done.items():
        if len(of_script) > 1 and _letters(of_script[-1]) < _ENOUGH.get(script, _ENOUGH_LETTERS) // 2:
            of_script[-2].extend(of_script.pop())
    found = [Piece(script, " ".join(runs), _letters(runs)) for script, of in done.items() for runs in of]
    return [piece for piece in found if piece.letters > 1]  # A lone letter is a variable.


def left_out(text: str) -> float:
    """The share of a text's letters that is in no language."""
    text = _seen(text)
    total = _letters([text])
    return 1.0 - _letters([_NO_LANGUAGE.sub(_foreign, text)]) / total if total else 0.0


def _seen(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG // 2] + "\n" + text[-_LONG // 2 :]


def _foreign(match: "re.Match[str]") -> str:
    if match["short"] is None:
        return " "
    return " ".join(["", *_runs_foreign(match["short"]), ""])


def _runs_foreign(text: str) -> Iterator[str]:
    for is_foreign, run in itertools.groupby(text, lambda character: _script(character) not in _OF_FORMULAS):
        if is_foreign:
            yield "".join(run)


def _runs(sentence: str) -> Iterator[tuple[str, str]]:
    """The sentence's words by script, one run a script."""
    found: dict[str, list[str]] = {}
    last, start = "", 0
    for position, character in enumerate(sentence):
        script = _script(character)
        if script and script != last:
            if last:
                found.setdefault(last, []).append(sentence[start:position])
            last, start = script, position
    if last:
        found.setdefault(last, []).append(sentence[start:])
    for script, parts in found.items():
        yield script, " ".join(parts).strip()


def _letters(runs: list[str]) -> int:
    return sum(sum(map(str.isalpha, run)) for run in runs)


@functools.lru_cache(maxsize=65536)
def _script(character: str) -> str:
    """LATIN, CJK, CYRILLIC...; empty for a character that is not a letter."""
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").partition(" ")[0]
    return _SAME.get(name, name)
