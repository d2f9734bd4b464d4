"""An orchestrator dies in the calls for a replica that a publication leaves out: its abort, then the way by disk."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.wire.rundir.layout import RunPaths
from tests.chaos.failpoints.armed_run import SCORED, ArmedRun
from tests.chaos.failpoints.campaign import undisturbed
from tests.chaos.failpoints.expected import LEFT_OUT
from tests.chaos.failpoints.verdicts import assert_whole

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 16
TRIES = 4
PHASES = tuple(
    f"--orchestrator.publication.{key}={seconds}"
    for key, seconds in {"prepare_s": 1, "transfer_s": 3, "verify_s": 3, "commit_s": 3}.items()
)
"""A frozen replica misses its phase soon: before the supervisor takes it for dead."""


def misses(armed: ArmedRun) -> int:
    """How often a publication has left a replica out."""
    return RunPaths(armed.run.run_dir).log("orchestrator").read_text().count('"event": "replica_missed_publication"')


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def strike_as_a_replica_is_left_out(armed: ArmedRun, name: str) -> None:
    """Freezes a replica until a publication goes on without it: thawed, it answers the abort, and is served by disk."""
    armed.arm(name, 0)
    for _ in range(TRIES):
        before, end = misses(armed), time.monotonic() + 30
        with frozen(armed.run.pid("rollout-0")):
            while misses(armed) == before and not armed.wait_for(name, 0.02) and time.monotonic() < end:
                continue
        if armed.wait_for(name, 20):
            return
    raise AssertionError(f"{name} was not reached" + armed.run.logs())


@pytest.mark.long
def test_orchestrators_that_die_as_they_leave_a_replica_out_lose_and_double_nothing(tmp_path: Path) -> None:
    before = undisturbed(tmp_path / "undisturbed", SCORED, steps=STEPS)
    armed = ArmedRun(tmp_path / "struck", SCORED, STEPS, PHASES)
    armed.start()
    try:
        for name in LEFT_OUT:
            armed.wait_for_steps(1)
            strike_as_a_replica_is_left_out(armed, name)
        armed.wait_for_steps(1)
        armed.hurry()
        armed.run.finish()
    finally:
        armed.run.close()
    assert_whole(armed.run.check(), before.weights_sha256, STEPS)
