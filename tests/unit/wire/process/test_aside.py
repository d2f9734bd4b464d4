"""What blocks on a thread of its own: its result and its error arrive, and no end waits for it."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import aside, in_time


def fails() -> None:
    raise ConfigError("no such folder")


async def test_result_and_error_arrive() -> None:
    assert await aside(lambda: threading.current_thread().name, "a-name") == "a-name"
    with pytest.raises(ConfigError, match="no such folder"):
        await aside(fails, "a-name")


def test_an_event_loop_ends_despite_a_blocked_thread_and_ignores_its_late_result() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def blocks() -> None:
        may_end.wait(300)
        ended.set()

    async def gives_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(aside(blocks, "blocks"), 0.1)

    asyncio.run(gives_up())
    assert not ended.is_set(), "the loop's end waited for it"
    may_end.set()
    assert ended.wait(60)
    (thread,) = [one for one in threading.enumerate() if one.name == "blocks"] or [None]
    if thread is not None:
        # An error in it would be one of this test: pytest tells of what threads leave unhandled.
        thread.join(60)


def test_a_thread_that_misses_its_deadline_is_handed_on_and_one_that_fails_in_time_is_not() -> None:
    may_end = threading.Event()
    left: list[Future[Any]] = []

    def times_out() -> None:
        raise TimeoutError("by itself")

    assert in_time(lambda: 7, 60.0, "quick", left.append) == 7
    with pytest.raises(TimeoutError, match="by itself"):
        in_time(times_out, 60.0, "fails", left.append)
    assert left == []
    with pytest.raises(TimeoutError):
        in_time(lambda: may_end.wait(60), 0.05, "hangs", left.append)
    (thread,) = left
    assert not thread.done()
    may_end.set()
    assert thread.result(60) is True
