"""The tools, served over MCP."""

import verifiers.v1 as vf


class StockState(vf.State):
    """What the tools know in an episode."""

    item: str = ""
    shelf: str = ""
    pieces: str = ""


class StockTools(vf.Toolset[vf.ToolsetConfig, StockState]):
    """Knows where an item lies, and how many pieces there are."""

    TOOL_PREFIX = None

    @vf.tool
    async def find(self, item: str) -> str:
        """Finds the shelf of an item."""
        return self.state.shelf if item == self.state.item else "none"

    @vf.tool
    async def count(self, shelf: str) -> str:
        """Counts the pieces on a shelf."""
        return self.state.pieces if shelf == self.state.shelf else "0"


if __name__ == "__main__":
    StockTools.run()
