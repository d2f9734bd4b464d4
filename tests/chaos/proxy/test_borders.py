"""Whatever a network does between the services, the run ends in the bits of one that it left alone."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.wire.rundir.layout import RunPaths
from tests.chaos.proxy.between import BROKER, JUDGE, ORCHESTRATOR, Between
from tests.chaos.proxy.faults import BlackHole, Cut, Hold, Refuse
from tests.chaos.proxy.judge import logprob
from tests.e2e.undisturbed import STEPS as WHOLE_STEPS
from tests.e2e.undisturbed import undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SECONDS = 6.0
"""Beyond a replica's lease (4 s), the broker's (3 s), a command's answer (5 s) and a try of the judge's (2 s)."""


def assert_told(run: Between, *others: str) -> None:
    """Every rollout has what the teacher says of its tokens, and nothing in its place; `others`: further teachers."""
    files = sorted(RunPaths(run.run.run_dir).rollouts.glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == WHOLE_STEPS * 16
    for row in rows:
        gaps = [own - logprob(token) for own, token in zip(row["logprobs"], row["token_ids"], strict=True)]
        components = json.loads(row["components"])
        assert components["teacher.kl"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
        assert all(components[f"{name}.kl"] for name in others)


def test_a_fault_at_each_border_in_one_run_costs_no_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # What adds nothing to a reward leaves the weights of the run that other tests have made.
    run = Between(tmp_path, steps=WHOLE_STEPS, judged=lambda ids: 0.0)
    try:
        run.start()
        run.strike(JUDGE, BlackHole(), 3.0)
        run.strike(JUDGE, Refuse(), 3.0)  # As if it were killed, and started again.
        run.strike(ORCHESTRATOR, Hold(), SECONDS)
        run.strike(BROKER, Cut(1, 6000), 3.0)
        assert run.finish() == undisturbed(tmp_path_factory).verdict["weights_sha256"]
        assert_told(run)
    finally:
        run.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_teachers_killed_ten_times_in_a_row_lose_no_group_and_score_every_token(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = {"path": str(tmp_path / "tiny" / "model")}
    own = {"name": "teacher", "label": "own", "weight": 0.0, "options": options}
    run = Between(tmp_path, steps=WHOLE_STEPS, judged=lambda ids: 0.0, scorers=[own], retries=0)
    try:
        run.start()
        for _ in range(10):
            run.kill_teachers()
        assert run.finish() == undisturbed(tmp_path_factory).verdict["weights_sha256"]
        assert_told(run, "own")
    finally:
        run.close()
