"""A loop's executor has all its threads from the start."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

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


async def test_of_very_many_a_part_runs_from_the_start() -> None:
    start_threads(1000, "many")
    assert named("many") == 128
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_the_loops_end_ends_them() -> None:
    start_threads(3, "ended")
    await asyncio.get_running_loop().shutdown_default_executor()
    assert named("ended") == 0


async def test_a_refused_thread_is_an_error_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, before = ThreadPoolExecutor.submit, named("refused")
    given: list[object] = []

    def limited(self: ThreadPoolExecutor, *arguments: object) -> object:
        if len(given) == 2:
            raise RuntimeError("can't start new thread")
        given.append(submit(self, *arguments))  # type: ignore[arg-type]
        return given[-1]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", limited)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start_threads(4, "refused")
    monkeypatch.undo()
    given.clear()
    until = time.monotonic() + 10
    while named("refused") > before and time.monotonic() < until:
        await asyncio.sleep(0.01)
    assert named("refused") == before
