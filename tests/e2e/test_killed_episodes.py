"""Episodes of a deterministic environment at staleness 0: whatever is killed, the same ids, logprobs and weights."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.episodes import kill_a_child, played_run
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]
STEPS = 9
VICTIMS = ("environment-0", "", "rollout-0", "reward-0", "trainer", "orchestrator", "broker")
"""One a step, in this order; the empty one is a child of the environment worker."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    """Its end is that of all others."""
    run = played_run(tmp_path_factory.mktemp("undisturbed") / "tiny", steps=STEPS)
    run.start()
    try:
        run.finish()
    finally:
        run.close()
    yield run


def kept(run: TinyRun) -> list[dict[str, Any]]:
    """What was trained, of each rollout: ids, bytes of logprobs, masks and rewards."""
    names = ("step", "group_index", "rollout_id", "token_ids", "logprobs", "versions", "reward", "finish_reason")
    files = sorted((run.run_dir / "rollouts").glob("step-*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert rows and {"token_ids", "logprobs"} <= rows[0].keys()
    return [{name: row[name] for name in names if name in row} for row in rows]


@pytest.mark.parametrize("later_s", [0.0, 0.25], ids=["as a step ends", "within the next"])
def test_whatever_is_killed_the_same_tokens_are_trained(undisturbed: TinyRun, tmp_path: Path, later_s: float) -> None:
    run = played_run(tmp_path / "tiny", steps=STEPS)
    run.start()
    try:
        for step, service in enumerate(VICTIMS, start=1):
            run.wait_for_step(step)
            time.sleep(later_s)  # Episodes of the next step have begun by then, and are in their first or a later turn.
            if not service:
                assert kill_a_child(run.pid("environment-0")), "the worker had no child"
                continue
            run.kill(service)
        run.finish()
    finally:
        run.close()
    verdict = run.check()
    assert verdict["groups"]["trained"] == STEPS * 4 and verdict["groups"]["open"] == 0
    assert verdict["weights_sha256"] == undisturbed.check()["weights_sha256"]
    assert kept(run) == kept(undisturbed)
