"""Episodes that wait for weights, and weights that wait for episodes: none of them needs a deadline to go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.episodes import GAME, played_run
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
# Each is longer than this test may take: what needs one to go on never ends.
PATIENCE = ("--environment.hold-s=3000", "--environment.episode-s=1500", "--trainer.batch-timeout-s=3000")
SLOW = GAME.replace(
    "        return task",
    "        if int(task['prompt'][0]) < 3:\n            __import__('time').sleep(4)\n        return task",
)


def finished(run: TinyRun, *options: str) -> list[dict[str, Any]]:
    """Runs it to its end; returns the steps' metrics."""
    run.start(*PATIENCE, *options)
    try:
        run.finish()
    finally:
        run.close()
    verdict = run.check()
    assert verdict["groups"]["trained"] == verdict["groups"]["issued"] == 24, verdict
    return run.metrics()


def test_one_slot_on_policy_with_an_evaluation_at_each_step(tmp_path: Path) -> None:
    # One group at a time: it would hold the only slot while it waits for the weights, these wait for the evaluation,
    # and the evaluation for the slot.
    run = played_run(tmp_path / "tiny", staleness=0)
    steps = finished(run, "--eval.every=1", "--eval.deadline-s=3000")
    assert [step["staleness_max"] for step in steps] == [0] * 6
    evals = [json.loads(line) for line in (run.run_dir / "evals.jsonl").read_text().splitlines()]
    assert [row["version"] for row in evals] == list(range(7))
    assert {(row["prompts"], row["missing"]) for row in evals} == {(8, 0)}


def test_weights_wait_for_an_episode_that_lasts_longer_than_steps(tmp_path: Path) -> None:
    assert SLOW != GAME
    run = played_run(tmp_path / "tiny", game=SLOW, staleness=1, deterministic=False)
    steps = finished(run, "--run.stale=wait", "--environment.slots=8", "--eval.every=100")
    assert max(step["staleness_max"] for step in steps) <= 1
    assert max(step["seconds"] + step["wait_batch_seconds"] for step in steps) > 3
