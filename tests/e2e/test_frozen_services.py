"""Each service of a run, and its broker, stands still for a while and goes on to the same weights."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 12
FROZEN_S = 20.0
"""Beyond the leases of replicas, claims and registrations (15 s), and within the supervisor's deadline (60 s)."""


@pytest.mark.long
def test_a_run_whose_processes_stand_still_in_turn_ends_in_the_same_weights(tmp_path: Path) -> None:
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    armed = ArmedRun(tmp_path / "frozen", SCORED, STEPS)
    armed.start()
    run = armed.run
    try:
        for service in ("trainer", "orchestrator", "rollout-0", "reward-0", "broker"):
            armed.wait_for_steps(1)
            pid = run.pid(service)
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(FROZEN_S)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert run.pid(service) == pid, f"{service} was started again within {FROZEN_S:g} s"
        armed.hurry()
        run.finish()
    finally:
        run.close()
    verdict = run.check()
    groups = verdict["groups"]
    assert verdict["weights_sha256"] == before.weights_sha256
    assert groups["trained"] == STEPS * 4
    assert groups["issued"] == groups["trained"] + sum(groups["dropped"].values()) + groups["open"]
