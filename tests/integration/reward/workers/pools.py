"""Pools of workers for tests, and what is alive of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.services.reward.workers.pool import WorkerPool

HERE = Path(__file__).parent


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
