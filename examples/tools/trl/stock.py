"""The stock of this example as an `environment_factory` of TRL's. It imports neither TRL nor Headrace."""

from typing import Any


class Stock:
    """Knows where an item lies, and how many pieces there are."""

    def reset(self, item: str, shelf: str, pieces: str, **row: Any) -> str:
        """Begins an episode; the answer stands behind the row's prompt, which is empty here."""
        self._item, self._shelf, self._pieces = item, shelf, pieces
        return f"How many {item}?"

    def find(self, item: str) -> str:
        """Finds the shelf of an item.

        Args:
            item: its name.
        """
        return self._shelf if item == self._item else "none"

    def count(self, shelf: str) -> str:
        """Counts the pieces on a shelf.

        Args:
            shelf: its number.
        """
        return self._pieces if shelf == self._shelf else "0"


def right(completions: list[list[dict[str, Any]]], pieces: list[str], **columns: Any) -> list[float]:
    """1 for the right number of pieces as the last word, else 0."""
    return [float(said[-1]["content"].strip() == wanted) for said, wanted in zip(completions, pieces, strict=True)]
