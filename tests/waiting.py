"""Waiting for a condition, with a deadline that no busy machine reaches."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 120.0


def until(
    condition: Callable[[], T],
    what: str = "the condition",
    seconds: float = DEADLINE_S,
    *,
    every_s: float = 0.02,
    detail: Callable[[], object] = str,
) -> T:
    """Waits until `condition` is true, and returns what it then is; `detail` is added to the message if it never is."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, _late(what, seconds, detail)
        time.sleep(every_s)
    return found


async def until_async(
    condition: Callable[[], T],
    what: str = "the condition",
    seconds: float = DEADLINE_S,
    *,
    every_s: float = 0.01,
    detail: Callable[[], object] = str,
) -> T:
    """The same on the running event loop."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, _late(what, seconds, detail)
        await asyncio.sleep(every_s)
    return found


def _late(what: str, seconds: float, detail: Callable[[], object]) -> str:
    return f"waited {seconds:g} s for {what}: {detail()}"
