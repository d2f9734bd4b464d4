"""A job hangs, raises, uses too much or answers, and the pool goes on."""

import asyncio
import math
import os
import signal
from pathlib import Path

import pytest

from headrace.services.reward.workers.errors import JobError, JobStarvedError, JobTimeoutError
from tests.integration.reward.workers.pools import a_pool, is_alive
from tests.waiting import until_async


async def test_a_job_gets_its_result_and_prints_do_not_disturb_it() -> None:
    async with a_pool(arguments={"add": 2}) as pool:
        assert (await pool.run({"do": "add", "a": 3}))["sum"] == 5
        large = "\ud800" + "x" * 3_000_000
        assert (await pool.run({"do": "echo", "what": large}))["said"] == large


async def test_a_hanging_job_is_killed_at_its_deadline_and_its_child_replaced() -> None:
    async with a_pool(deadline_s=2.0) as pool:
        before = (await pool.run({"do": "add", "a": 0}))["pid"]
        with pytest.raises(JobTimeoutError, match=r"the test's jobs: no answer within 2 s") as caught:
            await pool.run({"do": "nap", "seconds": 3600})
        assert caught.value.cpu_s is not None
        assert caught.value.cpu_s < 0.25  # It slept: whoever judges it may tell it from one that worked.
        assert not is_alive(before)
        after = (await pool.run({"do": "add", "a": 0}))["pid"]
        assert after != before


async def test_a_process_detached_by_a_hanging_job_delays_no_other_job(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with a_pool(deadline_s=2.0) as pool:
        with pytest.raises(JobTimeoutError):
            await pool.run({"do": "leave_a_child", "file": str(file), "apart": True})
        try:
            # It has the pipe of what its parent printed.
            assert is_alive(int(file.read_text()))
            assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1
        finally:
            os.kill(int(file.read_text()), signal.SIGKILL)


async def test_a_fair_deadline_counts_processor_time_and_a_starved_job_continues(tmp_path: Path) -> None:
    async with a_pool(deadline_s=5.0) as pool:
        pid = (await pool.run({"do": "add", "a": 0}))["pid"]
        begun = tmp_path / "begun"
        job = asyncio.create_task(pool.run_fairly({"do": "work", "until": 3.0, "file": str(begun)}))
        await until_async(begun.exists)
        os.kill(pid, signal.SIGSTOP)  # As a busy machine does to it, for longer than its deadline.
        await asyncio.sleep(5.5)
        os.kill(pid, signal.SIGCONT)
        assert (await job)["pid"] == pid


async def test_a_job_that_uses_up_its_processor_time_is_late(tmp_path: Path) -> None:
    async with a_pool(deadline_s=1.0) as pool:
        with pytest.raises(JobTimeoutError, match="no answer within 1 s") as caught:
            await pool.run_fairly({"do": "work", "until": 3600.0, "file": str(tmp_path / "begun")})
        assert caught.value.cpu_s is not None and caught.value.cpu_s >= 1.0
        assert (await pool.run_fairly({"do": "add", "a": 1}))["sum"] == 1


async def test_a_job_that_gets_no_processor_time_is_starved_and_ends() -> None:
    async with a_pool(deadline_s=0.3) as pool:
        with pytest.raises(JobStarvedError, match="too busy, it got 0"):
            await pool.run_fairly({"do": "nap", "seconds": 60})
        assert (await pool.run_fairly({"do": "add", "a": 1}))["sum"] == 1


async def test_waiting_for_a_free_process_does_not_count_towards_the_deadline() -> None:
    async with a_pool(deadline_s=3.0) as pool:
        naps = [pool.run({"do": "nap", "seconds": 0.8}) for _ in range(4)]
        assert len(await asyncio.gather(*naps)) == 4


async def test_two_processes_work_at_a_time() -> None:
    async with a_pool(processes=2) as pool:
        done = await asyncio.gather(*(pool.run({"do": "nap", "seconds": 2.0}) for _ in range(2)))
        assert max(item["from"] for item in done) < min(item["to"] for item in done)
        assert len({item["pid"] for item in done}) == 2


ERRORS = [
    ("raise", "KeyError", "absent"),
    ("leave", "SystemExit", "0"),
    ("number", "TypeError", "returned float, not a dict"),
    ("decimal", "TypeError", "decimal.Decimal"),
    ("array", "TypeError", "numpy.ndarray"),
    ("eat", "MemoryError", "MemoryError"),
    ({1}, "TypeError", "set"),
]


async def test_an_error_of_the_function_fails_its_job_and_the_child_survives() -> None:
    async with a_pool(memory_mb=2048) as pool:
        before = (await pool.run({"do": "add", "a": 1}))["pid"]
        for do, kind, words in ERRORS:
            with pytest.raises(JobError, match=words) as caught:
                await pool.run({"do": do})
            assert caught.value.kind == kind, do
        assert (await pool.run({"do": "add", "a": 1}))["pid"] == before


async def test_numbers_arrive_whether_they_are_finite_or_not() -> None:
    async with a_pool() as pool:
        found = await pool.run({"do": "nan"})
        assert math.isnan(found["value"])
        assert found["other"] == math.inf
        assert await pool.run({"do": "numpy"}) == {"value": 0.5, "count": 3, "flag": True}


async def test_the_result_of_a_cancelled_job_never_goes_to_the_next_job() -> None:
    async with a_pool() as pool:
        task = asyncio.create_task(pool.run({"do": "nap", "seconds": 5}))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await pool.run({"do": "add", "a": 4}))["sum"] == 4
