"""The trainer restarts from a checkpoint two versions behind what the engines hold: the steps between are its own."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.journal import BatchRecord, read_journal
from headrace.wire.rundir.events import read_events
from tests.e2e.harness import TinyRun
from tests.e2e.paced import PacedRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]
STEPS = 8
CHECKPOINT = 4
HELD = CHECKPOINT + 2
REPLICAS = {"rollout-0", "rollout-1"}


def commits(run: TinyRun) -> list[dict[str, Any]]:
    """What replicas have committed, oldest first."""
    found = [event for event in read_events(run.run_dir) if event["event"] == "weights_committed"]
    return sorted(found, key=lambda event: event["t"])


def holders(run: TinyRun, incarnation: int, version: int) -> set[str]:
    return {
        event["source"].rpartition("-")[0]
        for event in commits(run)
        if (event["incarnation"], event["version"]) == (incarnation, version)
    }


@pytest.mark.long
def test_a_trainer_from_step_k_replays_what_engines_at_k_plus_2_hold_and_publishes_it_anew(tmp_path: Path) -> None:
    run = PacedRun(tmp_path / "run", steps=STEPS)
    # A step takes more than a second, most of it the scorers': the trainer is killed before it has made two more.
    try:
        run.begin("--trainer.checkpoint_every", str(CHECKPOINT))
        end = time.monotonic() + 90
        while holders(run, 1, HELD) != REPLICAS:
            assert time.monotonic() < end, f"version {HELD} is not there" + run.logs()
            time.sleep(0.01)
        run.kill("trainer")
        run.hurry()
        line = run.finish()
    finally:
        run.close()
    assert line["steps"] == STEPS
    log = [json.loads(text) for text in (run.run_dir / "logs" / "trainer.log").read_text().splitlines()]
    second = [entry for entry in log if entry["event"] == "restored" and entry["incarnation"] == 2]
    assert [entry["checkpoint"] for entry in second] == [CHECKPOINT]
    begun = int(second[0]["version"])
    assert begun in (HELD, HELD + 1), "a batch that was journaled is trained"
    assert not [entry for entry in log if entry["event"] == "replay_diverged"]

    # The steps after the checkpoint were trained again, from the same batches; none was lost, none had two batches.
    steps = [entry for entry in log if entry["event"] == "step"]
    assert [entry["step"] for entry in steps if entry["replayed"]] == list(range(CHECKPOINT + 1, begun + 1))
    assert max(Counter(entry["step"] for entry in steps if not entry["replayed"]).values()) == 1
    assert [entry["step"] for entry in run.metrics()] == list(range(1, STEPS + 1))
    batches = [one.record for one in read_journal(run.run_dir / "journal") if isinstance(one.record, BatchRecord)]
    assert [batch.step for batch in batches] == list(range(1, STEPS + 1))

    # Republished under the new incarnation, bit for bit what the engines held, and nothing of the old one after it.
    assert holders(run, 2, begun) == REPLICAS
    digests = {event["version"]: set[str]() for event in commits(run)}
    for event in commits(run):
        digests[event["version"]].add(event["digest"])
    assert all(len(found) == 1 for found in digests.values())
    for replica in REPLICAS:
        lives = [event["incarnation"] for event in commits(run) if event["source"].startswith(f"{replica}-")]
        assert lives == sorted(lives) and set(lives) == {1, 2}
    verdict = run.check()
    assert verdict["groups"]["trained"] == STEPS * 4
