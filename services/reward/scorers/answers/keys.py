"""The row's side of an answer: its column, and the answer at the end of a solution. Pure."""

from collections.abc import Mapping

from headrace.services.reward.scorers.answers.answers import WIDE, find_answer

_MARKS = ("####", "\\boxed", "</answer>")


def column(columns: Mapping[str, object], name: str) -> object:
    """A column of the data row; raises KeyError naming those that there are."""
    if name not in columns:
        raise KeyError(f"the data has no column {name!r}; columns: {', '.join(sorted(columns)) or 'none'}")
    return columns[name]


def key_text(value: object) -> str:
    r"""The answer of a row: text or a number, alone or at the end of a solution (`####`, `\boxed{}`, `<answer>`).

    Raises ValueError for one that is neither, or empty.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"the answer is a {type(value).__name__}; text or a number is needed")
    text = str(value).translate(WIDE).strip()
    if any(mark in text for mark in _MARKS):
        found = find_answer(text)
        text = found.text if found is not None else ""
    if not text.strip("$ "):
        raise ValueError("the answer is empty")
    return text
