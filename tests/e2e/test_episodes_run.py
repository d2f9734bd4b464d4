"""A run whose rollouts are episodes of an environment: played, scored, trained, killed, and in order."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.inspect.output import BAD_INPUT
from headrace.wire.rundir.events import read_events
from tests.e2e.episodes import kill_a_child, played_run, trained_rows
from tests.e2e.harness import TinyRun
from tests.verbs import said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A tiny run of six steps in which every row is played."""
    made = played_run(tmp_path / "tiny")
    yield made
    made.close()


def test_episodes_train_and_killed_workers_and_children_lose_none(run: TinyRun) -> None:
    run.start("--trainer.checkpoint-every", "100")
    run.wait_for_step(1)
    os.kill(run.pid("environment-0"), signal.SIGKILL)
    run.wait_for_step(3)
    assert kill_a_child(run.pid("environment-0")), "the worker had no child"
    assert run.finish()["steps"] == 6
    scored = trained_rows(run, groups=24)
    assert {row["reward"] - (row["token_score"] or 0.0) for row in scored} <= {0.0, 1.0}
    assert {row["finish_reason"] for row in scored} >= {"stop"}
    workers = {one["source"] for one in read_events(run.run_dir) if one["event"] == "group_generated"}
    assert len(workers) == 2 and all(one.startswith("environment-0-") for one in workers), workers


def test_an_environment_that_cannot_be_loaded_is_refused_at_the_start(run: TinyRun) -> None:
    words = ("train", run.folder / "run.toml", "--dry-run", "--run-dir", run.run_dir)
    complaint = said(*words, "--environment.name", "game:Nobody", status=BAD_INPUT)
    assert "--environment.name: " in complaint and "game.py has no 'Nobody'" in complaint
    assert not run.run_dir.exists()
