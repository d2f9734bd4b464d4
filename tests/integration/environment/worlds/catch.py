"""Environments in the form of TRL's examples (`environment_factory`), with the functions that reward them."""

import asyncio


class Catch:
    """A ball falls three rows; a paddle is moved below it."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.reward = 0.0
        self.done = False

    @property
    def looked_at(self):
        raise AssertionError("a property is no tool, and is not read")

    def reset(self, column: int = 0, **kwargs) -> str:
        self.column, self.paddle, self.row = column, 1, 0
        self.reward, self.done = 0.0, False
        self.rows = sorted(kwargs)
        return f" ball {self.column}, paddle {self.paddle}"

    def move(self, direction: str, by: int = 1) -> str:
        """
        Moves the paddle.

        Args:
            direction: One of "left", "right",
                or "stay".
            by: How many columns.

        Returns:
            Where ball and paddle are.
        """
        if self.done:
            raise ValueError("Game over.")
        self.paddle += {"left": -by, "right": by, "stay": 0}[direction]
        self.row += 1
        if self.row == 2:
            self.done, self.reward = True, float(self.paddle == self.column)
        return f"ball {self.column}, paddle {self.paddle}"

    async def wait(self) -> dict:
        """Lets the ball fall."""
        await asyncio.sleep(0)
        self.row += 1
        return {"row": self.row}

    def _hidden(self) -> str:
        """Is no tool."""
        return "hidden"


class Scored(Catch):
    """Owns its reward."""

    async def get_reward(self) -> float:
        return 2.0 * self.reward


GAMES = {"catch": Catch, "scored": Scored}


class NoReset:
    def move(self) -> str:
        """Moves."""
        return ""


class Undocumented(Catch):
    def leap(self, far: int) -> str:
        """Leaps."""
        return ""


class Pictures(Catch):
    def reset(self, **kwargs):
        return [{"type": "image", "image": "..."}]


def dice(sides: int) -> int:
    """
    Throws a die.

    Args:
        sides: How many sides it has.
    """
    return sides


def caught(environments, **kwargs) -> list[float | None]:
    return [one.reward if one.done else None for one in environments]


def brief(prompts, completions, column, log_metric, **kwargs):
    (said,) = completions
    assert "<tool_call>" not in str(said), said
    calls = [
        call["function"]["name"] for one in said if one["role"] == "assistant" for call in one.get("tool_calls", ())
    ]
    log_metric("calls", len(calls))
    return [-0.01 * len(calls) + 0.001 * column[0] + 0.0001 * len(prompts[0])]


def needs_ids(completion_ids, **kwargs):
    return [0.0]


def two(environments, **kwargs):
    return [1.0, 2.0]
