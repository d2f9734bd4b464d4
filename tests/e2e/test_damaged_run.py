"""The broker's folder and the orchestrator's database are caches: damaged in one run, they cost no bit."""

import os
import random
import signal
from pathlib import Path

import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.broker_log import flip_commands, flip_messages
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def damage_state(run_dir: Path) -> None:
    """Overwrites the database, and its log in the same way: that has the newest pages whole."""
    for path in run_dir.glob("state.sqlite*"):
        if not path.name.endswith("-shm"):
            path.write_bytes(random.Random(1).randbytes(len(path.read_bytes()) or 5000))


def test_damage_to_the_broker_and_to_the_state_costs_no_bit(tmp_path: Path, undisturbed: str) -> None:
    run = TinyRun(tmp_path / "run", steps=STEPS)
    run.start()
    try:
        run.wait_for_step(2)
        run.hold_rollouts_back()
        # Messages that the server takes: their readers notice.
        run.kill_broker_over(flip_messages)
        run.go_on("reward-0")
        run.wait_for_step(4)
        # Commands with which it does not start.
        run.kill_broker_over(flip_commands)
        run.wait_for_step(5)
        os.kill(run.pid("orchestrator"), signal.SIGSTOP)
        damage_state(run.run_dir)
        run.kill("orchestrator")
        run.finish()
    finally:
        run.close()
    assert run.check()["weights_sha256"] == undisturbed
    assert {path.name for path in run.run_dir.glob("*.damaged-*")} == {"broker.damaged-1", "state.damaged-1"}
    said = (run.folder / "stderr.log").read_text().splitlines()
    assert len([line for line in said if "is now broker.damaged-1, and it starts empty" in line]) == 1
    events = list(read_events(run.run_dir))
    assert any(event["attempt"] for event in events if event["event"] == "issued"), "no damaged message was noticed"
    moved = [event["moved_to"] for event in events if event["event"] == "state_damaged"]
    assert moved == [str(run.run_dir / "state.damaged-1")]
