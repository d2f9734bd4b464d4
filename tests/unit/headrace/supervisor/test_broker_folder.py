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
