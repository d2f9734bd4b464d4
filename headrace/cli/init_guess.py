"""Guesses what rows are for, and where their columns lie. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.config.data import DataTable
from headrace.data.presets import find_column
from headrace.data.rows import DataRow

Kind = Literal["math", "reward", "tools", "sft", "dpo"]
_PROMPTS = ("prompt", "question", "problem", "instruction", "query", "input", "text")
_COMPLETIONS = ("completion", "response", "output")
_ANSWERS = ("answer", "solution", "ground_truth", "label", "target", *_COMPLETIONS)
_NOTHING: frozenset[str] = frozenset()
_ABSENT = (None, "")


@dataclass(frozen=True, slots=True)
class Guess:
    """What rows are for; `prompt` and `answer` name columns, empty = there is none."""

    kind: Kind
    table: DataTable
    prompt: str
    answer: str


def guess(rows: Sequence[DataRow], kind: Kind | None = None) -> Guess:
    """Guesses kind and columns by the first rows, at least one; a `kind` that is given stands."""
    names = set(rows[0].values)
    if kind is None and {"chosen", "rejected"} <= names:
        kind = "dpo"
    elif kind is None and "tools" in names:
        kind = "tools"
    elif kind is None and (names & {*_COMPLETIONS} or ("messages" in names and "prompt" not in names)):
        kind = "sft"
    table, prompt, answer = _layout(rows, {"sft": "completion", "dpo": "chosen"}.get(str(kind), "answer"))
    if kind is None:
        answers = [str(value) for row in rows if (value := _found(row, answer)) not in _ABSENT]
        kind = "math" if answer and all(re.search(r"\d", one) for one in answers) else "reward"
    return Guess(kind, table, prompt, answer)


def _found(row: DataRow, column: str) -> object:
    return find_column(row, column, DataTable(path="-"), _NOTHING)[1]


def _layout(rows: Sequence[DataRow], role: str) -> tuple[DataTable, str, str]:
    """The table of a preset that finds prompt and answer, else one that names columns; and the two columns."""
    row = rows[0]
    for preset in ("plain", "verl", "openrlhf", "messages"):
        table = DataTable.model_validate({"path": "-", "preset": preset})
        prompt, answer = (find_column(row, one, table, _NOTHING)[0] for one in ("prompt", role))
        if prompt and (answer or preset == "messages"):
            return table, prompt, answer
    # Of several unknown texts, the first may be an id.
    texts = [name for name, value in row.values.items() if isinstance(value, str) and role != "chosen"]
    wanted = {"prompt": (*_PROMPTS, *texts * (len(texts) == 1)), role: (role,) if role == "chosen" else _ANSWERS}
    held = {name for one in rows for name, value in one.values.items() if value not in _ABSENT}
    found = {one: next((name for name in names if name in held), "") for one, names in wanted.items()}
    columns = {one: name for one, name in found.items() if name not in ("", one)}
    return DataTable(path="-", columns=columns), found["prompt"], found[role]
