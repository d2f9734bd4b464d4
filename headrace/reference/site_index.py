"""A hook of mkdocs: the site's first page, `index.md`, shows README.md."""

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "README.md"
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?!docs/[\w/-]+\.|https?:)[^)]*\)")
"""A link to a target that the site lacks."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page; for the first one the README's, whose links start at docs/."""
    if page.file.src_uri != "index.md":
        return markdown
    return _OUTSIDE.sub(r"\1", README.read_text(encoding="utf-8")).replace("](docs/", "](")
