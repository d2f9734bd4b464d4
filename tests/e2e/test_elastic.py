"""Replicas come, go, freeze and return during a run, and the run goes on."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.supervisor.lock import supervisor
from headrace.wire.control import ask
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


@pytest.mark.long
def test_one_that_is_sent_away_hands_back_at_once_and_the_last_one_may_die(begin: Callable[..., PacedRun]) -> None:
    lease_s = 40
    run = begin(
        f"--broker.lease-s={lease_s}", f"--orchestrator.replica-lease-s={lease_s}", "--batch.groups=12",
        "--rollout.sampling.max-tokens=24", steps=14,
    )  # fmt: skip
    run.wait_for_step(2)
    run.wait_until(lambda: len(run.serving()) == 2, "both to serve")
    leaver, control = run.pid("rollout-1"), Path(supervisor(run.run_dir)["control"])
    run.wait_until(lambda: len(run.prompts_of("rollout-1")) >= 2, "it to have work")
    handed_back = run.prompts_of("rollout-1")
    assert asyncio.run(ask(control, {"verb": "scale", "service": "rollout", "count": 1}, 5)) == ["rollout-1 drains"]

    def taken() -> bool:
        return not handed_back & (run.prompts_of("") - run.prompts_of("rollout-0"))

    run.wait_until(taken, "the other one to take its prompts", lease_s / 2)

    def said_farewell() -> bool:
        known = run.status().get("replicas")
        return known is not None and "rollout-1" not in [one["id"] for one in known]

    run.wait_until(said_farewell, "its farewell", lease_s / 2)
    run.wait_until(lambda: not Path(f"/proc/{leaver}").exists(), "its end")
    run.wait_for_step(run.steps() + 1)
    assert "was killed" not in run.notices() and "left with" not in run.notices()
    # The sole replica of a strictly on-policy run: the next one gets the current weights at once.
    run.kill("rollout-0")
    run.hurry()
    assert run.finish()["steps"] == 14
    assert all(step["staleness_max"] == 0 for step in run.metrics())
    run.check()


@pytest.mark.long
def test_a_frozen_replica_holds_no_step_beyond_its_lease_and_comes_back_by_itself(
    begin: Callable[..., PacedRun],
) -> None:
    deadlines = {"prepare-s": 2, "transfer-s": 4, "verify-s": 2, "commit-s": 2}
    run = begin(
        "--supervisor.liveness-s=40",
        *(f"--orchestrator.publication.{name}={seconds}" for name, seconds in deadlines.items()),
        steps=60, deterministic=False,
    )  # fmt: skip
    run.wait_for_step(2)
    run.wait_until(lambda: len(run.serving()) == 2, "both to serve")
    frozen, step = run.pid("rollout-1"), run.steps()
    os.kill(frozen, signal.SIGSTOP)
    run.wait_for_step(step + 3)
    # The broker's lease of 3 s for its groups, then at most one deadline of a publication that it is part of: steps do
    # not wait for the supervisor, which finds it silent after `liveness-s`.
    assert "rollout-1 has not answered for" not in run.notices()
    run.wait_until(lambda: "rollout-1 has not answered for" in run.notices(), "it to be found silent")
    run.wait_until(lambda: len(run.serving()) == 2, "it to serve again")
    assert run.pid("rollout-1") != frozen
    run.hurry()
    assert run.finish()["steps"] == 60
    run.check()
