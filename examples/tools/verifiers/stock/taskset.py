"""Tasks, and what an answer is worth."""

import itertools
import random
from collections.abc import Iterator

import verifiers.v1 as vf

from stock.tools import StockState, StockTools

COLOURS = ("red", "blue", "green", "black", "white", "grey", "pink", "gold", "tan", "teal")
THINGS = ("bolts", "nuts", "gears", "pipes", "wires", "lamps", "tapes", "nails", "locks", "keys", "saws", "rods")


class StockData(vf.TaskData):
    """A row: what is asked, and what only the tools know."""

    item: str
    shelf: str
    pieces: str


class StockTask(vf.Task[StockData, StockState]):
    """How many pieces of an item there are."""

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Lays the item on its shelf: the server of tools is one for all episodes."""
        trace.state.item, trace.state.shelf, trace.state.pieces = self.data.item, self.data.shelf, self.data.pieces

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """1 for the right number of pieces as the last word."""
        return float(trace.last_reply == self.data.pieces)


class StockTaskset(vf.Taskset[StockTask, vf.TasksetConfig]):
    """As many tasks as are wanted."""

    INFINITE = True

    def load(self) -> Iterator[StockTask]:
        """Draws them, the same ones every time."""
        draw = random.Random(0)
        for _ in itertools.count():
            item = f"{draw.choice(COLOURS)} {draw.choice(THINGS)}"
            shelf, pieces = str(draw.randrange(1, 10)), str(draw.randrange(1, 10))
            yield StockTask(
                StockData(prompt=f"How many {item}?", item=item, shelf=shelf, pieces=pieces), self.config.task
            )

    @classmethod
    def toolsets(cls, config: vf.TasksetConfig) -> list[vf.Toolset]:
        """One server for all tasks."""
        return [StockTools(vf.ToolsetConfig())]
