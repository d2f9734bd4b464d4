"""A run whose rollouts are episodes of an environment: played, scored, trained, killed, and in order."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.run.execute import BAD_INPUT
from headrace.wire.rundir.events import read_events
from tests.e2e.episodes import kill_a_child, played_run
from tests.e2e.harness import TinyRun
from tests.verbs import said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A tiny run of six steps in which every row is played."""
    made = played_run(tmp_path / "tiny")
    yield made
    made.close()


def test_episodes_are_trained_and_a_killed_worker_and_child_lose_none(run: TinyRun) -> None:
    run.start("--trainer.checkpoint-every", "100")
    run.wait_for_step(1)
    os.kill(run.pid("environment-0"), signal.SIGKILL)
    run.wait_for_step(3)
    assert kill_a_child(run.pid("environment-0")), "the worker had no child"
    line = run.finish()
    assert line["steps"] == 6
    verdict = run.check()
    assert verdict["groups"] == {"issued": 24, "trained": 24, "dropped": {}, "open": 0}, verdict
    files = sorted((run.run_dir / "rollouts").glob("step-*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == 96 and {row["replica_id"] for row in rows} == {"environment-0"}
    scored = [row for row in rows if row["reward"] is not None]
    assert {row["reward"] for row in scored} <= {0.0, 1.0} and {row["finish_reason"] for row in scored} >= {"stop"}
    # What the game said between two turns is there, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in scored]
    assert max(heard) > 0, "no episode had a second turn"
    trained = [(row["trained_tokens"], row["tokens"] - less) for row, less in zip(scored, heard, strict=True)]
    assert all(one == other for one, other in trained)
    assert all(step["logprob_gap_max"] <= 1e-4 for step in run.metrics())
    workers = {one["source"] for one in read_events(run.run_dir) if one["event"] == "group_generated"}
    assert len(workers) == 2 and all(one.startswith("environment-0-") for one in workers), workers


def test_an_environment_that_cannot_be_loaded_is_refused_at_the_start(run: TinyRun) -> None:
    words = ("train", run.folder / "run.toml", "--dry-run", "--run-dir", run.run_dir)
    complaint = said(*words, "--environment.name", "game:Nobody", status=BAD_INPUT)
    assert "--environment.name: " in complaint and "game.py has no 'Nobody'" in complaint
    assert not run.run_dir.exists()
