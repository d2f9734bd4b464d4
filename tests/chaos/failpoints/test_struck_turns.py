"""Services whose engines share the trainer's GPUs die in the calls that pass a turn on, in one run."""

from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import undisturbed
from tests.chaos.failpoints.expected import TURNS
from tests.chaos.failpoints.verdicts import assert_whole

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 16
SHARED = ("--rollout.gpu-sharing", "turns", "--trainer.ranks", "1", "--rollout.replicas", "1")


@pytest.mark.long
def test_services_that_die_as_the_gpus_change_hands_lose_and_double_nothing(tmp_path: Path) -> None:
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    assert not before.reached & set(TURNS)
    armed = ArmedRun(tmp_path / "struck", SCORED, STEPS, SHARED)
    armed.start()
    try:
        for name in TURNS:
            armed.wait_for_steps(1)
            armed.arm(name, 0)
            assert armed.wait_for(name, 60), f"{name} was not reached" + armed.run.logs()
        armed.wait_for_steps(1)
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    assert_whole(armed.run.check(), before.weights_sha256, STEPS)
