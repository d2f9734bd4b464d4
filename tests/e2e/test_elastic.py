"""Replicas come, go, freeze and return during a run, and the run goes on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.paced import PacedRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., PacedRun]]:
    runs: list[PacedRun] = []

    def start(*arguments: str, **shape: Any) -> PacedRun:
        runs.append(PacedRun(tmp_path / f"run-{len(runs)}", **shape))
        runs[-1].begin(*arguments)
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def test_1_to_3_to_0_to_1_replicas_during_a_run_and_at_0_the_trainer_waits_and_says_why(
    begin: Callable[..., PacedRun],
) -> None:
    batch_timeout_s = 8.0
    run = begin(
        "--rollout.replicas=1", f"--trainer.batch-timeout-s={batch_timeout_s}", steps=80, staleness=1,
        deterministic=False,
    )  # fmt: skip
    run.wait_for_step(1)
    assert run.scale(3).split("\n")[:2] == [f"rollout-{index} is started" for index in (1, 2)]
    run.wait_until(lambda: len(run.serving()) == 3, "three replicas to serve")
    run.wait_for_step(run.steps() + 2)
    trainer = run.pid("trainer")
    run.scale(0)
    run.wait_until(lambda: not run.status().get("replicas", [1]), "all to be gone", 12.0)

    def waits() -> bool:
        told = run.status().get("trainer", {}).get("waiting_for", "")
        return str(told).endswith(": no rollout replica takes prompts")

    run.wait_until(waits, "the reason to be told", 15.0)
    reached, since = run.steps(), time.monotonic()

    def has_waited_long() -> bool:
        """What was being scored when the last replica left may still have made a step."""
        nonlocal reached, since
        if run.steps() != reached:
            reached, since = run.steps(), time.monotonic()
        return time.monotonic() > since + batch_timeout_s + 1.0

    run.wait_until(has_waited_long, "longer than a batch may take")
    assert waits() and run.pid("trainer") == trainer
    run.scale(1)
    run.wait_until(lambda: len(run.serving()) == 1, "a replica to serve")
    run.hurry()
    line = run.finish()
    assert line["steps"] == 80 and set(line["versions_committed"]) == {f"rollout-{index}" for index in range(3)}
    run.check()
    assert "was killed" not in run.notices(), "each left within the grace period"
