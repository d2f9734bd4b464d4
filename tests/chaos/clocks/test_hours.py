"""A run in which one clock after the other is set an hour forward and then back.

The broker's by libfaketime; those of the services by `shim/sitecustomize.py`, which says what it does not move (with
libfaketime, Python's `time.sleep` fails).
"""

import os
import time
from functools import partial
from pathlib import Path

import pytest
import redis

from headrace.wire.rundir import jsonl
from headrace.wire.rundir.layout import RunPaths
from tests.chaos.proxy.between import BROKER, Between
from tests.faketime import HOUR_S, MovedClock
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]
SERVICES = ("orchestrator", "trainer", "rollout", "reward")
SHIM = Path(__file__).with_name("shim")


def is_moved(at: float, seconds: int) -> bool:
    return abs(at - time.time() - seconds) < HOUR_S / 2


def service_moved(run: Between, service: str, seconds: int) -> bool:
    """Whether the newest event of the service has the time of its clock."""
    logs = RunPaths(run.run.run_dir).event_files(service)
    return any(is_moved(jsonl.number_of(jsonl.last(log).get("t")) or 0.0, seconds) for log in logs)


def broker_moved(run: Between, seconds: int) -> bool:
    with redis.Redis.from_url(run.valkey.url) as broker:
        return is_moved(broker.time()[0], seconds)


def test_clocks_that_jump_an_hour_cost_no_bit(tmp_path: Path) -> None:
    clocks = {name: MovedClock(tmp_path / f"clock-{name}") for name in (*SERVICES, BROKER)}
    path = os.pathsep.join(filter(None, (str(SHIM), os.environ.get("PYTHONPATH"))))
    variables = {name: {"PYTHONPATH": path, "MOVED_CLOCK": str(clocks[name].file)} for name in SERVICES}
    run = Between(tmp_path / "run", variables={**variables, BROKER: clocks[BROKER].variables})
    run.judge.pause_s = 1.0
    try:
        run.start()
        for name, clock in clocks.items():
            for seconds in (HOUR_S, -HOUR_S):
                run.wait_for_steps(1)
                clock.move(seconds)
                if name == BROKER:
                    until(partial(broker_moved, run, seconds), "the broker's clock to jump")
                    # Another is to take over what it holds, by the clock that has jumped.
                    run.processes["rollout"].kill()
                else:
                    until(partial(service_moved, run, name, seconds), f"the clock of {name} to jump")
                run.wait_for_steps(1)
        moved = run.finish()
    finally:
        run.close()
    plain = Between(tmp_path / "plain")
    try:
        plain.start()
        assert plain.finish() == moved
    finally:
        plain.close()
