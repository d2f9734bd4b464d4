"""The fenced blocks of the documentation, and what each kind promises.

```bash     runs as it stands, in order, from the top of its page, in an empty folder; with few training steps
```console  needs more than a folder (a live run, an engine, a cluster): each command of ours parses
```toml     a part of a config
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"bash", "console", "toml", "python", "json", "yaml", "promql", "text", "http"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    kind: str
    text: str

    @property
    def name(self) -> str:
        return self.page.relative_to(ROOT).as_posix()


def blocks(*kinds: str) -> Iterator[Block]:
    """Blocks of all pages, in order."""
    for page in PAGES:
        for match in _FENCED.finditer(page.read_text(encoding="utf-8")):
            if not kinds or match[1] in kinds:
                yield Block(page, match[1], match[2])


def indented_commands() -> Iterator[tuple[str, str]]:
    """Pages and lines of indented blocks that look like commands of ours: they belong into a fence."""
    for page in PAGES:
        text = _FENCED.sub("\n", page.read_text(encoding="utf-8"))
        for line in re.findall(r"^    ((?:headrace|make|python -m|docker|kubectl) .*)$", text, re.MULTILINE):
            yield page.relative_to(ROOT).as_posix(), line


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `headrace` command in a block: comments, prompts and what follows a pipe are left out."""
    joined = re.sub(r"\\\n", " ", text)
    for line in joined.splitlines():
        line = line.removeprefix("$ ").strip()
        for part in re.split(r"\s(?:&&|\|\||\||;)\s", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            if words[:1] == ["headrace"]:
                yield words[1:]
