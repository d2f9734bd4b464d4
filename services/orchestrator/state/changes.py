"""Follows a value that others change: a reading at once, then one at each change."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 0.05
"""Between two readings: a new version is known to all workers within this time."""


async def changes(read: Callable[[], T], *, repeat_s: float) -> AsyncIterator[T]:
    """Yields what `read` returns, whenever it differs from the last time, and at least every `repeat_s` seconds."""
    last, last_at = read(), time.monotonic()
    yield last
    while True:
        await asyncio.sleep(_LOOK_S)
        found = read()
        if found != last or time.monotonic() - last_at >= repeat_s:
            last, last_at = found, time.monotonic()
            yield last
