"""A loop's executor has all its threads from the start."""

import asyncio
import threading
import time

from headrace.wire.threads import start_threads


def named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


async def test_bursts_and_single_calls_start_no_thread() -> None:
    start_threads(5, "tested")
    assert named("tested") == 5
    for _ in range(50):
        await asyncio.to_thread(time.sleep, 0)
    names = await asyncio.gather(*(asyncio.to_thread(lambda: threading.current_thread().name) for _ in range(40)))
    assert all(name.startswith("tested") for name in names)
    assert named("tested") == 5
