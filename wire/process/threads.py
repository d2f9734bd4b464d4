"""Threads for blocking calls: all run from the start, so that a process whose threads grow in number leaks some."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

_START_S = 30.0
_MOST_STARTED = 128


def start_threads(count: int | None = None, name: str = "blocking") -> None:
    """Gives the running loop a default executor whose `count` threads, 128 at most, run when this returns.

    An executor starts a thread whenever work comes in while none is idle, and ends none: left to itself it goes on
    growing towards its limit for hours. `count` is asyncio's own limit unless given; those beyond 128 are started when
    all others are busy. Work goes to each thread in turn: what holds memory for each thread that calls it (a GPU's
    libraries) belongs into an executor of its own. Raises RuntimeError where the system refuses a thread.
    """
    count = count or min(32, (os.cpu_count() or 1) + 4)
    threads, started = ThreadPoolExecutor(count, thread_name_prefix=name), min(count, _MOST_STARTED)
    together = threading.Barrier(started)
    try:
        # None ends before the last has begun, so each takes a thread of its own.
        begun = [threads.submit(together.wait, _START_S) for _ in range(started)]
    except RuntimeError:
        together.abort()
        raise
    for one in begun:
        one.result()
    asyncio.get_running_loop().set_default_executor(threads)
