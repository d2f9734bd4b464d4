"""Garbage and half-open connections on every port of a live run of all services."""

import asyncio
from collections.abc import Iterator

import psutil
import pytest

from headrace.wire.access.roles import Role
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.episodes import TABLE, played_run
from tests.e2e.garbage import Port, half_open, payloads, ports_of, throw
from tests.e2e.harness import TinyRun
from tests.e2e.held import paused, processes, resumed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
EVERY = ("orchestrator", "trainer", "rollout-0", "reward-0", "environment-0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    folder = tmp_path_factory.mktemp("garbage")
    made = played_run(folder / "tiny", steps=4000, staleness=1, deterministic=False, table=TABLE)
    made.start("--eval.every", "10000")
    try:
        made.wait_for_step(2)
        yield made
    finally:
        made.close()


async def thrown(ports: list[Port]) -> None:
    for data in payloads(seed=7).values():
        await asyncio.gather(*(throw(port, data) for port in ports for _ in range(4)))


async def test_garbage_on_every_port_does_not_hold_the_run_up(run: TinyRun) -> None:
    doors = ports_of(processes(run))
    before = {name: run.pid(name) for name in EVERY}
    with half_open(doors, 60) as held:
        assert held > 30 * len(doors) > 300
        steps = run.steps()
        await thrown(doors)
        assert run.steps() > steps + 1
        run.wait_for_step(run.steps() + 2)
    assert {name: run.pid(name) for name in before} == before, "one has died"


async def test_garbage_on_every_port_costs_no_memory(run: TinyRun) -> None:
    # While it trains, the trainer grows by itself.
    paused(run, RunPaths(run.run_dir).tokens / Role.OPERATOR)
    doors = ports_of(processes(run))
    services = {name: psutil.Process(run.pid(name)) for name in EVERY}
    before = {name: process.memory_info().rss for name, process in services.items()}
    highest = dict(before)

    async def watch() -> None:
        while True:
            for name, process in services.items():
                highest[name] = max(highest[name], process.memory_info().rss)
            await asyncio.sleep(0.02)

    with half_open(doors, 60):
        watching = asyncio.create_task(watch())
        await thrown(doors)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    grown = {name: (highest[name] - before[name]) >> 20 for name in services}
    assert max(grown.values()) < 50, grown
    resumed(run, RunPaths(run.run_dir).tokens / Role.OPERATOR)


def test_a_run_that_got_garbage_ends_in_order(run: TinyRun) -> None:
    assert run.stop() == 130
    run.check()
