"""The table of the run directory in docs/running.md, made of the layout."""

from pathlib import Path

from headrace.reference.marked import replaced
from headrace.wire.rundir.layout import entries

DOC = Path(__file__).parents[2] / "docs" / "running.md"


def written(page: str) -> str:
    """The page with its table as it is now. Raises ValueError if it lacks the place of it."""
    lines = ["| path | what it is | written by | if it is lost |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.what} | {one.writer} | {one.lost} |" for one in entries()]
    return replaced(page, "run directory", "\n".join(lines) + "\n")
