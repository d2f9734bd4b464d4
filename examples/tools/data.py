"""Writes the data of this example: `python3 data.py FOLDER`. Only the standard library, the same bits every time.

A task asks how many pieces of an item there are. The stock is behind two tools, so an answer takes three turns: `find`
names the shelf of an item, `count` the pieces on a shelf. `sft.jsonl` teaches the form of such a conversation, by
examples that mostly guess the shelf; `tasks.jsonl` are tasks to play.
"""

import json
import random
import sys
from pathlib import Path

COLOURS = ("red", "blue", "green", "black", "white", "grey", "pink", "gold", "tan", "teal")
THINGS = ("bolts", "nuts", "gears", "pipes", "wires", "lamps", "tapes", "nails", "locks", "keys", "saws", "rods")
FINDS = 0.4
"""Share of the examples that look the shelf up; the others count on the shelf in the middle, wherever the item is."""
GUESS = "5"


def call(name: str, **arguments: str) -> str:
    """A call of a tool as the policy says it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def task(draw: random.Random) -> dict[str, str]:
    """One task: what is asked, and what only the tools know."""
    item = f"{draw.choice(COLOURS)} {draw.choice(THINGS)}"
    return {"item": item, "shelf": str(draw.randrange(1, 10)), "pieces": str(draw.randrange(1, 10))}


def example(draw: random.Random) -> dict[str, list[dict[str, str]]]:
    """A conversation in the right form, which ends with what `count` says."""
    asked = task(draw)
    said = [("user", f"How many {asked['item']}?")]
    shelf = GUESS
    if draw.random() < FINDS:
        shelf = asked["shelf"]
        said += [("assistant", call("find", item=asked["item"])), ("tool", shelf)]
    pieces = asked["pieces"] if shelf == asked["shelf"] else "0"
    said += [("assistant", call("count", shelf=shelf)), ("tool", pieces), ("assistant", pieces)]
    return {"messages": [{"role": role, "content": content} for role, content in said]}


def main(folder: Path) -> None:
    """All files."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    examples = [example(draw) for _ in range(8000)]
    words = [f"{one['role']}\n{one['content']}\n" for row in examples[:500] for one in row["messages"]]
    (folder / "words.txt").write_text("".join(words))
    for name, rows in (("sft.jsonl", examples), ("tasks.jsonl", [task(draw) for _ in range(6000)])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
