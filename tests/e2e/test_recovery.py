"""Whatever is killed: the final weights are bit-equal, and the history is in order."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from headrace.wire.rundir.events import read_events
from headrace.wire.telemetry.logs import trace_id
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS, Undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Start = Callable[..., TinyRun]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TinyRun]]:
    """Starts runs and leaves none behind, whatever the test does."""
    runs: list[TinyRun] = []

    def begin(*arguments: str, **shape: Any) -> TinyRun:
        runs.append(TinyRun(tmp_path / f"run-{len(runs)}", **{"steps": STEPS, **shape}))
        runs[-1].start(*arguments)
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def test_on_policy_trainer_and_engine_agree_and_every_group_is_trained(undisturbed_run: Undisturbed) -> None:
    steps = undisturbed_run.metrics()
    assert all(step["logprob_gap_max"] <= 1e-4 for step in steps)
    assert all(step["logprob_gap_tokens"] == step["completion_tokens"] for step in steps)
    assert all(step["staleness_max"] == 0 for step in steps)
    # The draw is cut off (top_p = 0.9): engine and trainer compare what was left.
    assert all(step["kept_ids_mean"] > 1 for step in steps)
    (row, *_) = pq.read_table(undisturbed_run.run_dir / "rollouts" / "step-000001.parquet").to_pylist()
    assert len(row["kept_ids"]) == row["tokens"] and min(row["kept_ids"]) > 0
    verdict = undisturbed_run.verdict
    assert verdict["groups"] == {"issued": STEPS * 4, "trained": STEPS * 4, "dropped": {}, "open": 0}
    assert verdict["unproven_steps"] == 0


def fork_server(run: TinyRun) -> psutil.Process:
    assert run.process is not None
    family = psutil.Process(run.process.pid).children()
    (server,) = [child for child in family if "headrace.supervisor.fork_server" in " ".join(child.cmdline())]
    return server


def test_sigkill_of_every_service_changes_no_bit(start: Start, undisturbed: str) -> None:
    run = start()
    victims = ("trainer", "rollout-0", "reward-0", "orchestrator", "broker", "rollout-1")
    for step, service in enumerate(victims, start=1):
        run.wait_for_step(step)
        if step == 4:
            assert run.forked("trainer")
            # What is killed from here on starts by itself.
            fork_server(run).kill()
        run.kill(service)
    run.wait_until(lambda: not run.forked("rollout-1"), "rollout-1 to start by itself")
    line = run.finish()
    assert line["steps"] == STEPS
    assert run.check()["weights_sha256"] == undisturbed


def test_one_trace_follows_a_group_through_all_services(undisturbed_run: Undisturbed) -> None:
    events = list(read_events(undisturbed_run.run_dir))
    issued = {e["group_id"]: trace_id(e["trace"]) for e in events if e["event"] == "issued"}
    generated = {e["group_id"]: e["trace"] for e in events if e["event"] == "group_generated" and "/g" in e["group_id"]}
    scored = {e["group_id"]: e["trace"] for e in events if e["event"] == "group_scored" and "/g" in e["group_id"]}
    trained = {
        row["group_id"]: row["trace_id"]
        for path in (undisturbed_run.run_dir / "rollouts").glob("*.parquet")
        for row in pq.read_table(path, columns=["group_id", "trace_id"]).to_pylist()
    }
    assert len(issued) == len(set(issued.values())) == STEPS * 4
    assert issued == generated == scored == trained
