"""Whatever a network does between the services, the run ends in the bits of one that it left alone."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.entry import GIVEN_UP
from tests.chaos.proxy.between import BROKER, JUDGE, ORCHESTRATOR, Between, undisturbed_weights
from tests.chaos.proxy.faults import BlackHole, Cut, Delay, Duplicate, Fault, Hold, Refuse, Reset, Throttle
from tests.e2e.undisturbed import STEPS as WHOLE_STEPS
from tests.e2e.undisturbed import undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
FAULTS: dict[str, tuple[Fault, ...]] = {
    BROKER: (Refuse(), Reset(), Cut(1, 6000), Delay(0.2), Throttle(3000), BlackHole(), Hold(), Duplicate(2)),
    ORCHESTRATOR: (Refuse(), Reset(), Cut(1, 1500), Delay(0.5), Throttle(1500), BlackHole(), Hold()),
    JUDGE: (Refuse(), Reset(), Cut(1, 900), Delay(0.2), Throttle(2000), BlackHole(), Hold()),
}
SECONDS = 6.0
"""Beyond a replica's lease (4 s), the broker's (3 s), a command's answer (5 s) and a try of the judge's (2 s)."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Between]:
    made = Between(tmp_path)
    yield made
    made.close()


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


@pytest.mark.long
@pytest.mark.parametrize("border", FAULTS)
def test_every_fault_at_a_border_costs_no_bit(
    run: Between, border: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run.start()
    for fault in FAULTS[border]:
        run.strike(border, fault, SECONDS)
    assert run.finish() == undisturbed_weights(tmp_path_factory)


ENDS = {
    BROKER: (
        "trainer",
        r"waited 15\.0 s for a batch for step .*\(the broker is away: read .*Timeout",
    ),
    # Where it is between two publications its credit ends first.
    ORCHESTRATOR: (
        "trainer",
        r"waited (20\.0 s for the publication of version .*the orchestrator to publish|15\.0 s for a batch for step)",
    ),
    JUDGE: ("reward", r"reward_endpoint.*has been down.*no answer in time"),
}
"""Border -> the service that gives up behind a black hole that is never lifted, and what it says it waited for."""
SHORT = (
    "--trainer.batch_timeout_s=15",
    "--trainer.publish_timeout_s=20",
    "--reward.outage_s=10",
    "--reward.failures_in_row=1",
)


@pytest.mark.long
@pytest.mark.parametrize("border", ENDS)
def test_a_service_gives_up_behind_a_black_hole_and_one_that_is_started_later_goes_on(
    run: Between, border: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run.start(*SHORT, judge_s=6)
    run.wait_for_steps(2)
    run.proxies[border].set(BlackHole())
    service, said = ENDS[border]
    try:
        code = run.processes[service].wait(120)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{service} waits without a deadline{run.logs()}") from None
    (last,) = [line for line in run.log(service).read_text().splitlines() if '"stopped"' in line]
    assert code == GIVEN_UP and re.search(said, last), last
    run.proxies[border].set(None)
    assert run.finish() == undisturbed_weights(tmp_path_factory)
