"""The command lines of ```console blocks, and how one is run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import blocks

_COMMENT = re.compile(r"\s+# .*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the pages that is run.

    `says` must be found in what it prints (a regular expression); `more` is appended to it; `replaced` are words of
    this line alone that stand for something else. `until_ctrl_c`: it serves until then.
    """

    line: str
    says: str
    more: str = ""
    replaced: tuple[tuple[str, str], ...] = ()
    until_ctrl_c: bool = False

    def command(self, words: dict[str, str]) -> str:
        """What the shell is given: placeholders are replaced by `words`, the line's own come first."""
        text = self.line
        for word, value in (*self.replaced, *words.items()):
            text = re.sub(rf"(?<![\w/]){re.escape(word)}(?![\w])", lambda _, value=value: value, text)
        return f"{text} {self.more}".rstrip()

    def __str__(self) -> str:
        return self.line


@dataclass(frozen=True, slots=True)
class Line:
    """One command line and its page."""

    page: str
    text: str


def console_lines() -> Iterator[Line]:
    """In order; continued lines are joined, prompts and comments are left out."""
    for block in blocks("console"):
        for line in re.sub(r"\s*\\\n\s*", " ", block.text).splitlines():
            text = _COMMENT.sub("", line.removeprefix("$ ")).strip()
            if text and not text.startswith("#"):
                yield Line(block.name, text)
