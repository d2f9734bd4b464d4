"""The stock behind two tools. It imports nothing of Headrace."""

from typing import Any


class Stock:
    """Asks how many pieces of an item there are; the answer is right, or it is not."""

    tools = ("find", "count")

    def reset(self, task: dict[str, Any], rollout_id: str, attempt: int) -> str:
        """Begins an episode with a question."""
        self.task, self.right = task, False
        return f"How many {task['item']}?"

    def find(self, item: str) -> str:
        """Finds the shelf of an item.

        Args:
            item: its name.
        """
        return str(self.task["shelf"]) if item == self.task["item"] else "none"

    def count(self, shelf: str) -> str:
        """Counts the pieces on a shelf.

        Args:
            shelf: its number.
        """
        return str(self.task["pieces"]) if shelf == self.task["shelf"] else "0"

    def step(self, message: dict[str, Any]) -> None:
        """Takes a message without a call as the answer."""
        self.right = message["content"].strip() == self.task["pieces"]

    def reward(self, messages: list[dict[str, Any]]) -> float:
        """1 for the right number of pieces, else 0."""
        return float(self.right)
