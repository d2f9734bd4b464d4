"""Markdown of the reference: tables, and places of a page whose text is generated."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, which ends in a newline."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    first, *others = ["| " + " | ".join(line) + " |\n" for line in lines]
    return "".join([first, "|" + "---|" * len(head) + "\n", *others])


def replaced(page: str, name: str, text: str) -> str:
    """The page with this text between `<!-- name -->` and `<!-- /name -->`. Raises ValueError if it lacks the place."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no {begin.strip()} ... {end}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"
