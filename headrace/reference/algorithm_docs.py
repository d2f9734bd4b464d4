"""The tables of docs/algorithms.md, made of recipes and parts."""

import inspect
from pathlib import Path

from headrace.reference.algorithms import describe, in_toml
from headrace.reference.marked import replaced, table
from headrace.services.trainer.algorithms.parts import ADVANTAGES, POLICY_LOSSES, Part

DOC = Path(__file__).parents[2] / "docs" / "algorithms.md"


def written(page: str) -> str:
    """The page with its tables as they are now. Raises ValueError if it lacks the place of one."""
    tables = {"algorithms": _algorithms(), "advantages": _advantages(), "policy losses": _losses()}
    for name, text in tables.items():
        page = replaced(page, name, text)
    return page


def _algorithms() -> str:
    rows = [
        (f"`{one.name}`", f"`{one.recipe.formula}`", in_toml(one.recipe.settings), one.recipe.source, one.recipe.use)
        for one in describe()
    ]
    return table(("Name", "Minimizes", "Defaults of its own", "Source", "When to use"), rows)


def _advantages() -> str:
    rows = []
    for one in ADVANTAGES.values():
        what, notes = _documented(one)
        needs = ", ".join(need.name.lower().replace("_", " ") for need in one.needs if need.name)
        rows.append((f"`{one.name}`", what, _keys(one), needs, notes))
    return table(("`advantage`", "what", "keys", "needs", "where libraries differ"), rows)


def _losses() -> str:
    rows = []
    for one in POLICY_LOSSES.values():
        what, notes = _documented(one)
        rows.append((f"`{one.name}`", what, _keys(one), notes))
    return table(("`policy_loss`", "a token's loss", "keys", "where libraries differ"), rows)


def _documented(part: Part) -> tuple[str, str]:
    """The first line of its function's docstring, and the paragraph after `Note:`."""
    what, *paragraphs = inspect.cleandoc(part.load().__doc__ or "").split("\n\n")
    notes = [one.removeprefix("Note: ") for one in paragraphs if one.startswith("Note: ")]
    return what, " ".join(" ".join(notes).split())


def _keys(part: Part) -> str:
    return ", ".join(f"`{name}`" for name in part.keys)
