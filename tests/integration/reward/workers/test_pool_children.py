"""A child of the pool dies or cannot start, and nothing of it survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.services.reward.scorer import ScorerDownError
from headrace.services.reward.workers.errors import JobDiedError
from headrace.wire.errors import ConfigError
from tests.integration.reward.workers.pools import HERE, a_pool, is_alive
from tests.waiting import until_async

HOLDER = """
import asyncio, json, sys
from pathlib import Path
from headrace.services.reward.workers.pool import WorkerPool
async def hold():
    pool = WorkerPool("jobs:plain", processes=2, deadline_s=60.0, what="jobs", path=Path(sys.argv[1]))
    await pool.start()
    found = await asyncio.gather(*(pool.run({"do": "nap", "seconds": 0.5}) for _ in range(2)))
    print(json.dumps([item["pid"] for item in found]), flush=True)
    await pool.run({"do": "nap", "seconds": 60})  # One works, and will for long, when the service dies.
asyncio.run(hold())
"""


async def test_a_dead_child_is_replaced_and_only_its_job_fails() -> None:
    async with a_pool() as pool:
        with pytest.raises(JobDiedError, match="was ended by SIGSEGV"):
            await pool.run({"do": "die", "signal": "SIGSEGV"})
        pid = (await pool.run({"do": "add", "a": 1}))["pid"]
        os.kill(pid, 9)
        await until_async(lambda: not is_alive(pid))
        assert (await pool.run({"do": "add", "a": 1}))["sum"] == 1


async def test_the_children_die_with_the_service(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(HERE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        pids = json.loads(service.stdout.readline())
        assert len(pids) == 2 and all(is_alive(pid) for pid in pids)
        service.kill()
    await until_async(lambda: not any(is_alive(pid) for pid in pids))


async def test_a_target_that_cannot_be_loaded_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="the test's jobs: ValueError: the weights are missing"):
        async with a_pool("jobs:broken"):
            pass
    with pytest.raises(ConfigError, match="No module named 'no_such_jobs'"):
        async with a_pool("no_such_jobs:plain"):
            pass


async def test_a_child_that_dies_while_it_loads_is_tried_a_few_times() -> None:
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
