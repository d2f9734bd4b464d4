"""A job hangs, crashes, raises or answers; the pool goes on, and nothing of a child survives."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.scorer import ScorerDownError
from headrace.services.reward.workers import (
    JobDiedError,
    JobError,
    JobLostError,
    JobStarvedError,
    JobTimeoutError,
    WorkerPool,
)
from headrace.wire.errors import ConfigError
from tests.waiting import until_async

HERE = Path(__file__).parent
both_ways = pytest.mark.parametrize("fork", [False, True], ids=["spawned", "forked"])
forked_first = pytest.mark.parametrize(
    "fork", [pytest.param(False, marks=pytest.mark.long), True], ids=["spawned", "forked"]
)
"""For what a child does, or what is done to it: alike however it was started, and a start takes seconds."""


@asynccontextmanager
async def a_pool(target: str = "jobs:plain", **options: Any) -> AsyncIterator[WorkerPool]:
    options = {"processes": 1, "deadline_s": 20.0, "path": HERE, **options}
    pool = WorkerPool(target, what="the test's jobs", **options)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def is_alive(pid: int) -> bool:
    """A zombie does not count once its other threads, which hold its sockets open, have ended too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@both_ways
async def test_a_job_gets_its_result_and_prints_do_not_disturb_it(fork: bool) -> None:
    async with a_pool(arguments={"add": 2}, fork=fork) as pool:
        assert (await pool.run({"do": "add", "a": 3}))["sum"] == 5
        large = "\ud800" + "x" * 3_000_000
        assert (await pool.run({"do": "echo", "what": large}))["said"] == large


@forked_first
async def test_a_hanging_job_is_killed_at_its_deadline_and_its_child_replaced(fork: bool) -> None:
    async with a_pool(deadline_s=2.0, fork=fork) as pool:
        before = (await pool.run({"do": "add", "a": 0}))["pid"]
        with pytest.raises(JobTimeoutError, match=r"the test's jobs: no answer within 2 s") as caught:
            await pool.run({"do": "nap", "seconds": 3600})
        assert caught.value.cpu_s is not None
        assert caught.value.cpu_s < 0.25  # It slept: whoever judges it may tell it from one that worked.
        assert not is_alive(before)
        after = (await pool.run({"do": "add", "a": 0}))["pid"]
        assert after != before


@forked_first
async def test_a_fair_deadline_is_of_processor_time_and_a_starved_job_goes_on(fork: bool, tmp_path: Path) -> None:
    async with a_pool(deadline_s=5.0, fork=fork) as pool:
        pid = (await pool.run({"do": "add", "a": 0}))["pid"]
        begun = tmp_path / "begun"
        job = asyncio.create_task(pool.run_fairly({"do": "work", "until": 3.0, "file": str(begun)}))
        await until_async(begun.exists)
        os.kill(pid, signal.SIGSTOP)  # As a busy machine does to it, for longer than its deadline.
        await asyncio.sleep(5.5)
        os.kill(pid, signal.SIGCONT)
        assert (await job)["pid"] == pid


@forked_first
async def test_a_job_that_uses_up_its_processor_time_is_its_own_fault(fork: bool, tmp_path: Path) -> None:
    async with a_pool(deadline_s=1.0, fork=fork) as pool:
        with pytest.raises(JobTimeoutError, match="no answer within 1 s") as caught:
            await pool.run_fairly({"do": "work", "until": 3600.0, "file": str(tmp_path / "begun")})
        assert caught.value.cpu_s is not None and caught.value.cpu_s >= 1.0
        assert (await pool.run_fairly({"do": "add", "a": 1}))["sum"] == 1


@forked_first
async def test_a_job_that_gets_no_processor_time_ends_all_the_same(fork: bool) -> None:
    async with a_pool(deadline_s=0.3, fork=fork) as pool:
        with pytest.raises(JobStarvedError, match=r"too busy, it got 0\.0 s in \d"):
            await pool.run_fairly({"do": "nap", "seconds": 60})
        assert (await pool.run_fairly({"do": "add", "a": 1}))["sum"] == 1


@forked_first
async def test_waiting_for_a_turn_costs_nothing_of_the_deadline(fork: bool) -> None:
    async with a_pool(deadline_s=3.0, fork=fork) as pool:
        naps = [pool.run({"do": "nap", "seconds": 0.8}) for _ in range(4)]
        assert len(await asyncio.gather(*naps)) == 4


@forked_first
async def test_two_processes_work_at_a_time(fork: bool) -> None:
    async with a_pool(processes=2, fork=fork) as pool:
        done = await asyncio.gather(*(pool.run({"do": "nap", "seconds": 2.0}) for _ in range(2)))
        assert max(item["from"] for item in done) < min(item["to"] for item in done)
        assert len({item["pid"] for item in done}) == 2


@forked_first
async def test_a_killed_job_takes_what_it_started_with_it(fork: bool, tmp_path: Path) -> None:
    async with a_pool(deadline_s=2.0, fork=fork) as pool:
        with pytest.raises(JobTimeoutError):
            await pool.run({"do": "leave_a_child", "file": str(tmp_path / "pid")})
        other = int((tmp_path / "pid").read_text())
        await until_async(lambda: not is_alive(other))


@forked_first
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
async def test_a_child_that_dies_of_its_job_says_how_and_is_replaced(fork: bool, name: str) -> None:
    async with a_pool(fork=fork) as pool:
        with pytest.raises(JobDiedError, match=f"was killed by {name}"):
            await pool.run({"do": "die", "signal": name})
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


@both_ways
async def test_a_child_that_died_idle_is_no_jobs_fault(fork: bool) -> None:
    async with a_pool(fork=fork) as pool:
        pid = (await pool.run({"do": "add", "a": 1}))["pid"]
        os.kill(pid, 9)
        await until_async(lambda: not is_alive(pid))
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


async def test_all_forked_children_gone_with_their_parent_are_made_anew() -> None:
    async with a_pool(fork=True) as pool:
        pid = (await pool.run({"do": "add", "a": 1}))["pid"]
        os.kill(parent_of(pid), 9)
        await until_async(lambda: not is_alive(pid))
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


async def test_a_job_lost_with_the_forking_parent_is_not_called_its_fault() -> None:
    async with a_pool(fork=True) as pool:
        pid = (await pool.run({"do": "add", "a": 1}))["pid"]
        job = asyncio.create_task(pool.run({"do": "nap", "seconds": 30}))
        await asyncio.sleep(0.2)
        os.kill(parent_of(pid), 9)
        with pytest.raises(JobLostError):
            await job


@both_ways
async def test_all_dies_with_the_service(fork: bool, tmp_path: Path) -> None:
    service = subprocess.Popen([sys.executable, HERE / "holder.py", str(fork), tmp_path / "pids"])
    await until_async((tmp_path / "pids").exists)
    pids = json.loads((tmp_path / "pids").read_text())
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    service.kill()
    service.wait()
    await until_async(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.parametrize(
    ("do", "kind", "words"),
    [
        ("raise", "KeyError", "absent"),
        ("leave", "SystemExit", "0"),
        ("number", "TypeError", "returned float, not a dict"),
        ("decimal", "TypeError", "decimal.Decimal"),
        ("array", "TypeError", "numpy.ndarray"),
    ],
)
async def test_what_the_function_raises_is_told_and_the_child_lives_on(do: str, kind: str, words: str) -> None:
    async with a_pool() as pool:
        before = (await pool.run({"do": "add", "a": 1}))["pid"]
        with pytest.raises(JobError, match=words) as caught:
            await pool.run({"do": do})
        assert caught.value.kind == kind
        assert (await pool.run({"do": "add", "a": 1}))["pid"] == before


async def test_numbers_come_as_they_are_finite_or_not() -> None:
    async with a_pool() as pool:
        found = await pool.run({"do": "nan"})
        assert math.isnan(found["value"])
        assert found["other"] == math.inf
        assert await pool.run({"do": "numpy"}) == {"value": 0.5, "count": 3, "flag": True}


@both_ways
async def test_memory_is_bounded(fork: bool) -> None:
    async with a_pool(memory_mb=2048, fork=fork) as pool:
        with pytest.raises(JobError, match="MemoryError"):
            await pool.run({"do": "eat"})


async def test_a_job_that_json_cannot_hold_is_refused() -> None:
    async with a_pool() as pool:
        with pytest.raises(JobError, match="set"):
            await pool.run({"do": {1}})


@both_ways
async def test_what_cannot_load_says_so_at_the_start(fork: bool) -> None:
    with pytest.raises(ConfigError, match="the test's jobs: ValueError: the weights are missing"):
        async with a_pool("jobs:broken", fork=fork):
            pass
    with pytest.raises(ConfigError, match="No module named 'no_such_jobs'"):
        async with a_pool("no_such_jobs:plain", fork=fork):
            pass


async def test_what_dies_while_it_loads_is_tried_a_few_times() -> None:
    with pytest.raises(ConfigError, match="exited with status 7 while it loaded, 3 times in a row"):
        async with a_pool("jobs:dies"):
            pass


async def test_a_child_that_cannot_be_replaced_means_that_the_scorer_is_down(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with a_pool("jobs:dies_later", arguments={"flag": str(flag)}) as pool:
        flag.touch()
        with pytest.raises(JobDiedError):
            await pool.run({"do": "die", "signal": "SIGKILL"})
        for _ in range(2):
            with pytest.raises(ScorerDownError, match="the second start fails"):
                await pool.run({"do": "add", "a": 1})
        flag.unlink()
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


@both_ways
async def test_a_cancelled_jobs_answer_is_never_taken_for_anothers(fork: bool) -> None:
    async with a_pool(fork=fork) as pool:
        task = asyncio.create_task(pool.run({"do": "nap", "seconds": 5}))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await pool.run({"do": "add", "a": 4}))["sum"] == 4


@both_ways
async def test_closing_leaves_nobody_behind(fork: bool) -> None:
    async with a_pool(processes=2, fork=fork) as pool:
        pids = {(await pool.run({"do": "nap", "seconds": 0}))["pid"] for _ in range(4)}
    assert not any(is_alive(pid) for pid in pids)
