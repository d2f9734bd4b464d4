"""The table of the run directory in docs/running.md, made of the layout."""

from pathlib import Path

from headrace.wire.rundir.layout import entries

DOC = Path(__file__).parents[2] / "docs" / "running.md"
_BEGIN, _END = "<!-- run directory -->\n", "<!-- /run directory -->"


def written(page: str) -> str:
    """The page with its table as it is now. Raises ValueError if it lacks the place of it."""
    if _BEGIN not in page or _END not in page:
        raise ValueError(f"{DOC} has no {_BEGIN.strip()} ... {_END}")
    lines = ["| path | what it is | written by | if it is lost |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.what} | {one.writer} | {one.lost} |" for one in entries()]
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}" + "\n".join(lines) + f"\n{_END}{rest.partition(_END)[2]}"
