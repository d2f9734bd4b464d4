"""The embedded broker's folder is made before each start, and put aside where it is what kills the server."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headrace.supervisor.broker import EmbeddedBroker, embedded
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget, ProcessMonitor, RunFailedError


@pytest.fixture
def broker(tmp_path: Path) -> EmbeddedBroker:
    return embedded(tmp_path, {})


def test_the_folder_is_made_before_each_start(broker: EmbeddedBroker) -> None:
    for early in (0, 1, 2, 3):
        assert broker.prepare(early) == ""
        broker.data.rmdir()


def test_what_it_died_of_twice_is_put_aside_and_kept(broker: EmbeddedBroker) -> None:
    folder = broker.data
    for number in (1, 2):
        broker.prepare(0)
        (folder / "log").write_text(f"damaged {number}")
        assert broker.prepare(1) == "" and (folder / "log").exists()
        told = broker.prepare(2)
        assert f"{folder} is now broker.damaged-{number}, and it starts empty" in told
        assert list(folder.iterdir()) == []
        assert (folder.with_name(f"broker.damaged-{number}") / "log").read_text() == f"damaged {number}"


def test_a_file_in_its_place_is_put_aside_too(broker: EmbeddedBroker) -> None:
    broker.data.write_text("no folder")
    assert "broker.damaged-1" in broker.prepare(2) and broker.data.is_dir()


async def test_each_start_is_prepared_with_the_early_deaths_before_it_and_what_it_tells_is_shown(
    tmp_path: Path,
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "run").mkdir()
    asked: list[int] = []
    notices: list[str] = []

    def prepare(early: int) -> str:
        asked.append(early)
        return "put aside" if early == 2 else ""

    async def ready(seconds: float) -> None:
        await asyncio.sleep(seconds)

    dying = ProcessPlan(name="broker", argv=(sys.executable, "-c", "raise SystemExit(7)"), env=dict(os.environ))
    budget = Budget(early_deaths=4, backoff_s=0.01)
    monitor = ProcessMonitor(
        dying, tmp_path, ready=ready, is_over=None, budget=budget, notice=notices.append, prepare=prepare
    )
    with pytest.raises(RunFailedError, match="exited with status 7 4 times before it was ready"):
        await monitor.run()
    assert asked == [0, 1, 2, 3]
    assert notices.count("put aside") == 1


async def test_a_folder_that_cannot_be_made_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    def prepare(_: int) -> str:
        raise PermissionError(13, "Permission denied", "/runs/a/broker")

    async def ready(_: float) -> None:
        raise AssertionError("it was started")

    plan = ProcessPlan(name="broker", argv=("false",), env={})
    monitor = ProcessMonitor(
        plan, tmp_path, ready=ready, is_over=None, budget=Budget(), notice=pytest.fail, prepare=prepare
    )
    with pytest.raises(RunFailedError, match=r"broker cannot be started: .*/runs/a/broker"):
        await monitor.run()
