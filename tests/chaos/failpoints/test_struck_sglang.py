"""An orchestrator and a trainer die as they compare the checksums of SGLang's own tensors, on the real SGLang."""

from pathlib import Path

import pytest

from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.expected import HASHED
from tests.chaos.failpoints.verdicts import lost_and_doubled
from tests.sglang import sglang_venv

pytestmark = [pytest.mark.e2e, pytest.mark.sglang, pytest.mark.long, pytest.mark.timeout(600)]
STEPS = 12
START_S = 200.0


def test_services_that_die_as_checksums_are_compared_lose_and_double_nothing(tmp_path: Path) -> None:
    table = {"engine": "sglang", "sglang.venv": sglang_venv(), "sglang.device": "cpu", "replicas": 1}
    # SGLang's kernels for a CPU give other bits for other batches.
    table |= {"deterministic": "false"}
    armed = ArmedRun(tmp_path / "run", SCORED, STEPS, [f"--rollout.{key}={value}" for key, value in table.items()])
    armed.start()
    try:
        for name in HASHED:
            armed.wait_for_steps(1)
            armed.arm(name, 0)
            assert armed.wait_for(name, START_S), f"{name} was not reached" + armed.run.logs()
        armed.wait_for_steps(1)
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    assert lost_and_doubled(armed.run.check()["groups"], STEPS) == (0, 0)
