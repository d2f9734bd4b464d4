"""The tables of docs/algorithms.md, made of recipes and parts."""

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.reference.algorithms import as_markdown, describe
from headrace.reference.marked import replaced
from headrace.services.trainer.algorithms.registry import ADVANTAGES, POLICY_LOSSES, Need, Part

DOC = Path(__file__).parents[2] / "docs" / "algorithms.md"


def written(page: str) -> str:
    """The page with its tables as they are now. Raises ValueError if it lacks the place of one."""
    tables = {
        "algorithms": "\n" + as_markdown(describe()) + "\n",
        "advantages": _advantages(),
        "policy losses": _losses(),
    }
    for name, table in tables.items():
        page = replaced(page, name, table + "\n")
    return page


def _advantages() -> str:
    rows = []
    for one in ADVANTAGES.values():
        what, notes = _documented(one)
        rows.append((f"`{one.name}`", what, _keys(one), needs_in_words(one.needs), notes))
    return _table(("`advantage`", "what", "keys", "needs", "where libraries differ"), rows)


def _losses() -> str:
    rows = []
    for one in POLICY_LOSSES.values():
        what, notes = _documented(one)
        rows.append((f"`{one.name}`", what, _keys(one), notes))
    return _table(("`policy_loss`", "a token's loss", "keys", "where libraries differ"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _documented(part: Part) -> tuple[str, str]:
    """The first line of its function's docstring, and the paragraph after `Note:`."""
    what, *paragraphs = inspect.cleandoc(part.load().__doc__ or "").split("\n\n")
    notes = [one.removeprefix("Note: ") for one in paragraphs if one.startswith("Note: ")]
    return what, " ".join(" ".join(notes).split())


def _keys(part: Part) -> str:
    return ", ".join(f"`{name}`" for name in part.keys)


def needs_in_words(needs: Need) -> str:
    """The needs of a part, with commas between."""
    return ", ".join(one.name.lower().replace("_", " ") for one in needs if one.name)
