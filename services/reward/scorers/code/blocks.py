"""Finds the program in a completion. Pure."""

import re

from headrace.services.reward.scorers.answers.answers import tagged_or_all

_FENCES = ("```", "~~~")
_PYTHON = re.compile(r"(?:python|py)[\d.]*(?![\w#+-])")
"""Also with its version, and with what some renderers take after a colon or in braces."""


def find_program(text: str) -> str:
    """The last fenced block of Python; else the last block that names no language; else what the last `<answer>` holds,
    or the whole text.

    A block that was never closed counts: it reaches to the end.
    """
    blocks = _blocks(text)
    bare = [body for language, body in blocks if not language]
    found = [body for language, body in blocks if _PYTHON.match(language)] or bare
    if found:
        return found[-1]
    return "" if blocks else tagged_or_all(text)


def _blocks(text: str) -> list[tuple[str, str]]:
    """(language, body) of each fenced block, as CommonMark finds them."""
    found: list[tuple[str, str]] = []
    fence, language = "", ""
    body: list[str] = []
    for line in text.split("\n"):  # Not at U+2028 and the like, which may stand in a program's texts.
        bare = line.strip()
        opens = next((mark for mark in _FENCES if bare.startswith(mark)), "")
        length = len(bare) - len(bare.lstrip(opens[0])) if opens else 0
        if not fence and opens and opens[0] not in bare[length:]:
            fence = opens[0] * length
            language = (bare[length:].split() or [""])[0].strip("{}.").lower()
            body = []
        elif fence and bare.startswith(fence) and not bare.strip(fence[0]):
            found.append((language, "\n".join(body)))
            fence = ""
        elif fence:
            body.append(line)
    if fence:
        found.append((language, "\n".join(body)))
    return found
