"""A run whose agent is a program: served, killed, scored by the file that it writes, trained, and in order."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tests.e2e.episodes import AGENT_TABLE, kill_a_child, played_run
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


def test_a_program_is_trained_and_a_killed_worker_and_program_lose_none(run: TinyRun) -> None:
    # Two groups a step: each of the 48 episodes is a program that Python starts for.
    run.start("--trainer.checkpoint-every", "100", "--batch.groups", "2", "--eval.every", "100000")
    run.wait_for_step(1)
    os.kill(run.pid("environment-0"), signal.SIGKILL)
    run.wait_for_step(3)
    run.wait_until(lambda: kill_a_child(run.pid("environment-0"), b"agent.py"), "a program to kill")
    assert run.finish()["steps"] == 6
    verdict = run.check()
    assert verdict["groups"] == {"issued": 12, "trained": 12, "dropped": {}, "open": 0}, verdict
    files = sorted((run.run_dir / "rollouts").glob("step-*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == 48 and {row["replica_id"] for row in rows} == {"environment-0"}
    scored = [row for row in rows if row["reward"] is not None]
    assert len(scored) == 48, [row["episode"] for row in rows if row["reward"] is None][:2]
    assert {row["reward"] for row in scored} == {0.0, 1.0}
    assert {row["finish_reason"] for row in scored} >= {"stop", "turn_limit"}
    # What the program said between two turns is there, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in scored]
    assert max(heard) > 0, "no episode had a second turn"
    trained = [(row["trained_tokens"], row["tokens"] - less) for row, less in zip(scored, heard, strict=True)]
    assert all(one == other for one, other in trained)
    steps = run.metrics()
    assert all(step["logprob_gap_max"] <= 1e-4 for step in steps)
    # Two groups whose episodes ended alike move nothing.
    assert sum(step["grad_norm"] > 0 for step in steps) >= 3
    begun, ended = (
        load_file(folder / "model.safetensors") for folder in (run.folder / "model", run.run_dir / "export")
    )
    assert any(not np.array_equal(begun[name], ended[name]) for name in begun), "the weights did not move"
