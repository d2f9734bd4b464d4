"""Whatever a network does between the environment worker and the replica, no turn is lost and none counts twice."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.wire.entry import GIVEN_UP
from tests.chaos.proxy.faults import BlackHole, Cut, Delay, Fault, Hold, Refuse, Reset, Throttle
from tests.chaos.proxy.played import ENVIRONMENT, STEPS, TURNS, PlayedBetween, undisturbed_weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
LOSING: tuple[Fault, ...] = (Cut(1, 1500), BlackHole())
"""HTTP/2 has no duplicates on one connection: these make a worker ask twice for what may have been sampled."""
OTHERS: tuple[Fault, ...] = (Refuse(), Reset(), Delay(0.3), Throttle(2000), Hold())


def trained_rollouts(run: PlayedBetween) -> Counter[tuple[str, int]]:
    """How often each rollout was trained, by its group and its place there."""
    found: Counter[tuple[str, int]] = Counter()
    for file in sorted((run.run.run_dir / "rollouts").glob("step-*.parquet")):
        table = pq.read_table(file, columns=["group_id", "rollout_index"])
        found.update(zip(table["group_id"].to_pylist(), table["rollout_index"].to_pylist(), strict=True))
    return found


@pytest.mark.long
@pytest.mark.parametrize("faults", [LOSING, OTHERS], ids=["losing", "others"])
def test_a_fault_between_the_worker_and_the_replica_costs_no_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, faults: tuple[Fault, ...]
) -> None:
    run = PlayedBetween(tmp_path)
    try:
        run.start()
        hits = {fault: run.disturb(fault) for fault in faults}
        verdict = run.verdict()
    finally:
        run.close()
    assert run.is_apart(), run.proxies[TURNS].asked
    assert all(hits.values()), hits
    assert verdict["groups"] == {"issued": STEPS * 4, "trained": STEPS * 4, "dropped": {}, "open": 0}
    found = trained_rollouts(run)
    assert len(found) == STEPS * 16 and set(found.values()) == {1}
    assert verdict["weights_sha256"] == undisturbed_weights(tmp_path_factory)
    # The worker itself has borne it all: none of the services ended.
    assert not run.restarts, run.logs()


@pytest.mark.long
def test_behind_a_black_hole_that_stays_episodes_abstain_at_their_deadline_and_the_trainer_gives_up(
    tmp_path: Path,
) -> None:
    run = PlayedBetween(tmp_path, steps=6)
    try:
        run.start("--environment.episode-s=4", "--trainer.batch-timeout-s=20")
        run.wait_for_steps(2)
        run.proxies[TURNS].set(BlackHole())
        assert run.processes["trainer"].wait(120) == GIVEN_UP, run.logs()
        (last,) = [line for line in run.log("trainer").read_text().splitlines() if '"stopped"' in line]
        assert "waited 20.0 s for a batch" in last, last
        assert "abstentions_high" in run.log(ENVIRONMENT).read_text()
        run.proxies[TURNS].set(None)
        dropped = run.verdict()["groups"]["dropped"]
    finally:
        run.close()
    assert set(dropped) == {"abstained"} and not run.restarts.keys() - {"trainer"}
