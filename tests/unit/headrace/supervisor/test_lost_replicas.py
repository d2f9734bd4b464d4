"""Which replicas a run can go on with, where one of their service is lost."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.supervisor.process_monitor import Budget, ProcessLostError
from headrace.supervisor.processes import ProcessSet


async def never() -> None:
    await asyncio.Event().wait()


async def lost() -> None:
    raise ProcessLostError("rollout-0 exited with status 1 20 times before it was ready")


def add(processes: ProcessSet, name: str, task: "asyncio.Task[None]", *, ready: bool) -> None:
    monitor: Any = SimpleNamespace(first_ready=asyncio.Event())
    if ready:
        monitor.first_ready.set()
    processes._monitors[name], processes._tasks[name] = monitor, task


@pytest.mark.parametrize(
    ("other", "state", "goes_on"),
    [
        ("rollout-1", "kept", True),
        ("rollout-1", "never ready", False),
        ("rollout-1", "draining", False),
        ("rollout-1", "ended", False),
        ("reward-1", "kept", False),
    ],
)
async def test_a_run_goes_on_without_a_replica_only_with_another_that_works_and_stays(
    other: str, state: str, goes_on: bool, tmp_path: Path
) -> None:
    notices: list[str] = []
    processes = ProcessSet(tmp_path, Budget(), notices.append)
    add(processes, "rollout-0", asyncio.create_task(lost()), ready=True)
    task = asyncio.create_task(asyncio.sleep(0) if state == "ended" else never())
    add(processes, other, task, ready=state != "never ready")
    if state == "draining":
        processes._leaving[other] = task
    await asyncio.sleep(0.01)
    if goes_on:
        processes.check()
        assert processes.was_given_up("rollout-0") and processes.monitor("rollout-0") is None
        assert notices[0].startswith("rollout-0 is given up, the run goes on with the others of its service")
    else:
        with pytest.raises(ProcessLostError):
            processes.check()
        assert not processes.was_given_up("rollout-0") and not notices
    task.cancel()
