"""A child of the pool dies or cannot start, and nothing of it survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.services.reward.scorer import ScorerDownError
from headrace.services.reward.workers.errors import JobDiedError, JobTimeoutError
from headrace.wire.errors import ConfigError
from tests.integration.reward.workers.pools import HERE, a_pool, is_alive
from tests.waiting import until_async


async def test_a_killed_job_takes_what_it_started_with_it(tmp_path: Path) -> None:
    async with a_pool(deadline_s=2.0) as pool:
        with pytest.raises(JobTimeoutError):
            await pool.run({"do": "leave_a_child", "file": str(tmp_path / "pid")})
        other = int((tmp_path / "pid").read_text())
        await until_async(lambda: not is_alive(other))


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
async def test_a_child_that_dies_of_its_job_says_how_and_is_replaced(name: str) -> None:
    async with a_pool() as pool:
        with pytest.raises(JobDiedError, match=f"was ended by {name}"):
            await pool.run({"do": "die", "signal": name})
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


async def test_a_child_that_died_idle_is_no_jobs_fault() -> None:
    async with a_pool() as pool:
        pid = (await pool.run({"do": "add", "a": 1}))["pid"]
        os.kill(pid, 9)
        await until_async(lambda: not is_alive(pid))
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


async def test_all_dies_with_the_service(tmp_path: Path) -> None:
    service = subprocess.Popen([sys.executable, HERE / "holder.py", tmp_path / "pids"])
    await until_async((tmp_path / "pids").exists)
    pids = json.loads((tmp_path / "pids").read_text())
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    service.kill()
    service.wait()
    await until_async(lambda: not any(is_alive(pid) for pid in pids))


async def test_what_cannot_load_says_so_at_the_start() -> None:
    with pytest.raises(ConfigError, match="the test's jobs: ValueError: the weights are missing"):
        async with a_pool("jobs:broken"):
            pass
    with pytest.raises(ConfigError, match="No module named 'no_such_jobs'"):
        async with a_pool("no_such_jobs:plain"):
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


async def test_closing_leaves_nobody_behind() -> None:
    async with a_pool(processes=2) as pool:
        pids = {(await pool.run({"do": "nap", "seconds": 0}))["pid"] for _ in range(4)}
    assert not any(is_alive(pid) for pid in pids)
