"""A run whose agent is a program: served, killed, scored by the file that it writes, trained, and in order."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.e2e.episodes import AGENT_TABLE, kill_a_child, played_run, trained_rows
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A tiny run of six steps in which every row is a program's task."""
    if shutil.which("bwrap") is None and os.environ.get("HEADRACE_REQUIRE_SANDBOX") != "1":
        pytest.skip("there is no bubblewrap (apt-get install bubblewrap)")
    made = played_run(tmp_path / "tiny", table=AGENT_TABLE)
    yield made
    made.close()


def test_agent_episodes_train_and_killed_workers_and_programs_lose_none(run: TinyRun) -> None:
    # Two groups a step: each of the 48 episodes is a program that Python starts for.
    run.start("--trainer.checkpoint-every", "100", "--batch.groups", "2", "--eval.every", "100000")
    run.wait_for_step(1)
    os.kill(run.pid("environment-0"), signal.SIGKILL)
    run.wait_for_step(3)
    run.wait_until(lambda: kill_a_child(run.pid("environment-0"), b"agent.py"), "a program to kill")
    assert run.finish()["steps"] == 6
    scored = trained_rows(run, groups=12)
    assert len(scored) == 48
    assert {row["reward"] for row in scored} == {0.0, 1.0}
    assert {row["finish_reason"] for row in scored} >= {"stop", "turn_limit"}
    # Two groups whose episodes ended alike move nothing.
    assert sum(step["grad_norm"] > 0 for step in run.metrics()) >= 3
    begun, ended = (
        load_file(folder / "model.safetensors") for folder in (run.folder / "model", run.run_dir / "export")
    )
    assert any(not np.array_equal(begun[name], ended[name]) for name in begun), "the weights did not move"
