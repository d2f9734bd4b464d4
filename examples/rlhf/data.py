"""Writes the data of this example: `python3 data.py FOLDER`. Only the standard library, the same bits every time.

The task: say the letters of the prompt in alphabetical order, `dbeac=` -> `abcde`. Nobody ever shows the model an
ordered answer. It first learns to say the letters again in any order (`sft.jsonl`); then somebody ranks pairs of
answers, and errs now and then (`pairs.jsonl`); reinforcement learning finds out what they liked (`prompts.jsonl`).
"""

import json
import math
import random
import sys
from pathlib import Path

from rewards import quality

LETTERS = "abcdefghijkl"
LENGTH = 5
SLIPS = 0.25
"""Share of ranked answers with a wrong letter: a reward model must see what it is to dislike."""
SHARPNESS = 12.0
"""Sharpness of the ranking: two answers whose quality differs by 1/4 are ranked wrongly in 5 of 100 cases."""


def word(draw: random.Random) -> str:
    """Letters without order: a prompt is such a word and an equals sign."""
    return "".join(draw.sample(LETTERS, LENGTH))


def answer(draw: random.Random, asked: str, *, slips: float = 0.0) -> str:
    """The same letters in any order; sometimes one of them is another letter."""
    letters = draw.sample(asked, LENGTH)
    if draw.random() < slips:
        letters[draw.randrange(LENGTH)] = draw.choice(LETTERS)
    return "".join(letters)


def ranked(draw: random.Random) -> dict[str, str]:
    """A pair in the order of somebody who errs more the closer the two are (Bradley-Terry)."""
    asked = word(draw)
    while True:
        first, second = (answer(draw, asked, slips=SLIPS) for _ in range(2))
        lead = quality(first, asked) - quality(second, asked)
        if lead:
            break
    right = draw.random() < 1 / (1 + math.exp(-SHARPNESS * lead))
    chosen, rejected = (first, second) if right else (second, first)
    return {"prompt": f"{asked}=", "chosen": chosen, "rejected": rejected}


def main(folder: Path) -> None:
    """All three files."""
    draw = random.Random(0)
    words = [word(draw) for _ in range(10_000)]
    files = {
        "sft.jsonl": [{"prompt": f"{one}=", "completion": answer(draw, one)} for one in words[:6000]],
        "pairs.jsonl": [ranked(draw) for _ in range(6000)],
        "prompts.jsonl": [{"prompt": f"{one}=", "letters": one} for one in words[6000:]],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
