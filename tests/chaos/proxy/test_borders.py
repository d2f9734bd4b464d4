"""Whatever a network does between the services, the run ends in the bits of one that it left alone."""

from pathlib import Path

import pytest

from tests.chaos.proxy.between import BROKER, JUDGE, ORCHESTRATOR, Between
from tests.chaos.proxy.faults import BlackHole, Cut, Hold
from tests.e2e.undisturbed import STEPS as WHOLE_STEPS
from tests.e2e.undisturbed import undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SECONDS = 6.0
"""Beyond a replica's lease (4 s), the broker's (3 s), a command's answer (5 s) and a try of the judge's (2 s)."""


def test_a_fault_at_each_border_in_one_run_costs_no_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # What adds nothing to a reward leaves the weights of the run that other tests have made.
    run = Between(tmp_path, steps=WHOLE_STEPS, judged=lambda ids: 0.0)
    try:
        run.start()
        run.strike(JUDGE, BlackHole(), 3.0)
        run.strike(ORCHESTRATOR, Hold(), SECONDS)
        run.strike(BROKER, Cut(1, 6000), 3.0)
        assert run.finish() == undisturbed(tmp_path_factory).verdict["weights_sha256"]
    finally:
        run.close()
