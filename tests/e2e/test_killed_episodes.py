"""Episodes of a deterministic environment at staleness 0: whatever is killed, the same ids, logprobs and weights."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.episodes import holding_game, kill_a_child, played_run
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


def are_held(run: TinyRun, kind: str) -> bool:
    """Whether an episode has waited for a second for its environment or for its engine."""
    status = run.status()
    waits = [wait for one in status.get("environments", ()) for wait in one["waits"]]
    return any(wait["kind"] == kind and status["now"] - wait["since"] >= 1 for wait in waits)


def kill(run: TinyRun, service: str) -> None:
    if service:
        run.kill(service)
    else:
        assert kill_a_child(run.pid("environment-0")), "the worker had no child"


def kill_in_a_call(run: TinyRun, service: str, hold: Path) -> None:
    """Kills while the environment stands still in a step: behind a turn."""
    hold.touch()
    run.wait_until(lambda: are_held(run, "environment"), "an episode to be held in a step")
    kill(run, service)
    hold.unlink()


def kill_in_a_turn(run: TinyRun, service: str, hold: Path) -> None:
    """Kills while the frozen replica has turns to sample."""
    hold.touch()
    run.wait_until(lambda: are_held(run, "environment"), "an episode to be held in a step")
    replica = run.pid("rollout-0")
    os.kill(replica, signal.SIGSTOP)
    hold.unlink()
    run.wait_until(lambda: are_held(run, "engine"), "an episode to wait for the replica")
    kill(run, service)
    with contextlib.suppress(ProcessLookupError):
        os.kill(replica, signal.SIGCONT)


MOMENTS = {
    "as a step ends": lambda run, service, hold: kill(run, service),
    "in a call of the environment": kill_in_a_call,
    "in a turn": kill_in_a_turn,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_whatever_is_killed_the_same_tokens_are_trained(undisturbed: TinyRun, tmp_path: Path, moment: str) -> None:
    (tmp_path / "seen").mkdir()
    hold = tmp_path / "seen" / "hold"
    run = played_run(tmp_path / "tiny", game=holding_game(hold), steps=STEPS)
    run.start(f"--environment.folders={json.dumps([str(hold.parent)])}", "--environment.tool-s=90")
    try:
        for step, service in enumerate(VICTIMS, start=1):
            run.wait_for_step(step)
            MOMENTS[moment](run, service, hold)
        run.finish()
    finally:
        run.close()
    verdict = run.check()
    assert verdict["groups"]["trained"] == STEPS * 4 and verdict["groups"]["open"] == 0
    assert verdict["weights_sha256"] == undisturbed.check()["weights_sha256"]
    assert kept(run) == kept(undisturbed)
