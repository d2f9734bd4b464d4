"""Skewed lengths at staleness 1, for real: what is trained, what the checker says, and what a replay gives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.harness import DEADLINE_S
from tests.e2e.skewed import SkewedRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 8


@pytest.mark.parametrize("stale", ["wait", pytest.param("mask", marks=pytest.mark.long)])
def test_no_answer_is_left_out_and_a_killed_trainer_changes_no_step(tmp_path: Path, stale: str) -> None:
    run = SkewedRun(tmp_path / "run", steps=STEPS, stale=stale)
    run.start()
    try:
        run.wait_for_step(4)
        run.kill("trainer")
        line = run.finish()
    finally:
        run.close()
    assert line["groups_dropped"] == {}
    # Of `wait` that is: strict order; of `mask`: no trained token over the bound.
    assert run.check()["groups"]["trained"] == STEPS * 4
    for row in run.metrics():
        assert row["staleness_max"] <= 1
        if stale == "wait":
            assert row["kept_share"] == 1
            assert row.get("groups_stale", 0) == 0 and row.get("arrived_length_max", 0) in (
                0,
                row["trained_length_max"],
            )
    replayed = replay(run.run_dir, tmp_path / "again")
    assert [row["weights_as_in_run"] for row in replayed] == [True] * STEPS
    said = [event for event in read_events(run.run_dir) if event["event"] == "step_done"]
    assert len({event["weights_digest"] for event in said}) == STEPS


def replay(run_dir: Path, out: Path) -> list[dict[str, object]]:
    """`headrace replay` from the first model; its lines."""
    command = [sys.executable, "-P", "-m", "headrace", "replay", str(run_dir), "--out", str(out)]
    done = subprocess.run(
        [*command, "--from-checkpoint", "0"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
