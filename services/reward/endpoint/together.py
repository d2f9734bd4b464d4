"""Several requests at once, of which none outlives the others' failure."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

T = TypeVar("T")


async def together(works: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """All results in order; the first error ends the others and is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
