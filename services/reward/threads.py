"""Threads for what is computed off the event loop: rules, models, files."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

_FEWEST = 32


def widen_threads(concurrency: int) -> None:
    """Gives the running loop enough of them: by default there are so few that one scorer waits for another's."""
    threads = ThreadPoolExecutor(_FEWEST + 4 * concurrency, thread_name_prefix="scorers")
    asyncio.get_running_loop().set_default_executor(threads)
