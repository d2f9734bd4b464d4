"""A run whose answers have skewed lengths: lognormal with sigma 1, as those of reasoning models."""

import json
import random
from pathlib import Path

from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from tests.e2e.harness import TinyRun

SIZE = 4
"""Rollouts of a group."""
MEAN, CAP = 24, 320
"""Tokens of an answer: on average, and at most."""


class SkewedRun(TinyRun):
    """`TinyRun` at staleness 1 with rows that say how long each of their answers is."""

    def __init__(self, folder: Path, *, steps: int, stale: str) -> None:
        super().__init__(folder, steps=steps, staleness=1, deterministic=False, replicas=2)
        shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=CAP + 16)
        write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
        draw = random.Random(0)
        rows = [
            {"prompt": f"{number}+1=", "answer": str(number + 1), "lengths": [_length(draw) for _ in range(SIZE)]}
            for number in range(200)
        ]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._options = (
            *("--run.stale", stale, "--data.eval-path", "", "--eval.every", "0"),
            # The journal keeps all batches: a replay begins with the first model.
            *("--trainer.checkpoint-every", "1000"),
            *("--rollout.sampling.max-tokens", str(CAP), "--rollout.sampling.forced-lengths-column", "lengths"),
        )

    def start(self, *arguments: str) -> None:
        super().start(*self._options, *arguments)


def _length(draw: random.Random) -> int:
    return min(max(round(draw.lognormvariate(0, 1) * MEAN / 1.65), 1), CAP)
