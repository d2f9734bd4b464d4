"""Answers of skewed lengths at staleness 1: all are trained, whatever their length, though services are killed."""

import json
import random
from pathlib import Path

import pytest

from headrace.demo.arithmetic import CHARACTERS
from headrace.inspect.history.record import batches_by_step, read_history
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from tests.e2e.harness import TinyRun
from tests.verbs import result

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 8
SIZE = 4
"""Rollouts of a group."""
MEAN, CAP = 24, 320
"""Tokens of an answer: on average, and at most."""


class SkewedRun(TinyRun):
    """`TinyRun` at staleness 1 with rows that say how long each of their answers is: lognormal with sigma 1."""

    def __init__(self, folder: Path, stale: str) -> None:
        super().__init__(folder, steps=STEPS, staleness=1, deterministic=False, replicas=2)
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
            # Then the journal keeps all batches, and the trainer that is killed begins at the first again.
            *("--trainer.checkpoint-every", "100"),
            *("--rollout.sampling.max-tokens", str(CAP), "--rollout.sampling.forced-lengths-column", "lengths"),
            *("--rollout.sampling.top-p", "1"),
        )

    def start(self, *arguments: str) -> None:
        super().start(*self._options, *arguments)


def _length(draw: random.Random) -> int:
    return min(max(round(draw.lognormvariate(0, 1) * MEAN / 1.65), 1), CAP)


@pytest.mark.parametrize("stale", ["wait", "late"])
def test_every_group_is_trained_and_none_is_cut(tmp_path: Path, stale: str) -> None:
    run = SkewedRun(tmp_path / "run", stale)
    run.start()
    try:
        run.wait_for_step(2)
        run.kill("rollout-0")
        run.wait_for_step(4)
        run.kill("trainer")
        line = run.finish()
    finally:
        run.close()
    assert line["groups_dropped"] == {}
    # Of `wait` the history proves the order of issue, of `late` the credit.
    assert run.check()["groups"]["trained"] == STEPS * 4
    trained = [index for _, batch in batches_by_step(read_history(run.run_dir)) for index in batch.record.group_indices]
    assert (trained == sorted(trained)) == (stale == "wait")
    again = result("replay", run.run_dir, "--out", tmp_path / "again")
    assert again["as_in_run"] == STEPS, "what was trained before and after the kill is what the journal has"
    for row in run.metrics():
        assert row["token_lag_max"] <= row["staleness_max"] <= (1 if stale == "wait" else STEPS)
        assert row["kept_share"] == 1
        assert row.get("groups_stale", 0) == 0
        assert row.get("arrived_length_max", 0) in (0, row["trained_length_max"])
