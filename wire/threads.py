"""Threads for what blocks: all run from the start, so that a process whose threads grow in number leaks some."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

_START_S = 30.0


def start_threads(count: int | None = None, name: str = "blocking") -> None:
    """Gives the running loop a default executor whose `count` threads run when this returns.

    An executor starts a thread whenever work comes in while none is idle, and ends none: left to itself it goes on
    growing towards its limit for hours. `count` is asyncio's own limit unless given. Raises RuntimeError where the
    system refuses a thread.
    """
    count = count or min(32, (os.cpu_count() or 1) + 4)
    threads = ThreadPoolExecutor(count, thread_name_prefix=name)
    together = threading.Barrier(count)
    try:
        # None ends before the last has begun, so each takes a thread of its own.
        begun = [threads.submit(together.wait, _START_S) for _ in range(count)]
    except RuntimeError:
        together.abort()
        raise
    for one in begun:
        one.result()
    asyncio.get_running_loop().set_default_executor(threads)
