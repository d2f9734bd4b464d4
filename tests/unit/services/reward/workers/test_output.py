"""What users' scorers print does not fill the disk."""

import asyncio

import structlog

from headrace.services.reward import metrics
from headrace.services.reward.workers.output import OutputBudget, copy_output


def test_a_burst_is_taken_and_then_so_many_bytes_a_second() -> None:
    budget = OutputBudget(0.0, burst=100, rate=10.0)
    assert budget.takes(60, 0.0) and budget.takes(40, 0.0)
    assert not budget.takes(1, 0.0)
    assert not budget.takes(20, 1.0) and budget.takes(10, 1.0)
    # It does not grow beyond the burst, and what did not fit took nothing.
    assert not budget.takes(101, 1000.0) and budget.takes(100, 1000.0)


async def test_half_a_line_that_was_kept_does_not_stand_before_the_next_line_of_the_log() -> None:
    printed = asyncio.StreamReader()
    written: list[bytes] = []
    budget = OutputBudget(1e12, burst=4, rate=0.0)
    copying = asyncio.create_task(copy_output(printed, "scorer", write=written.append, budget=budget))
    for piece in (b"half", b" and the rest\n", b"more\n"):
        printed.feed_data(piece)
        while printed._buffer:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
    printed.feed_eof()
    await copying
    assert written == [b"half", b"\n"]


async def test_what_does_not_fit_is_counted_and_said() -> None:
    printed = asyncio.StreamReader()
    written: list[bytes] = []
    before = metrics.OUTPUT_DROPPED._value.get()
    with structlog.testing.capture_logs() as logs:
        copying = asyncio.create_task(
            copy_output(printed, "scorer noisy", write=written.append, budget=OutputBudget(1e12, burst=8, rate=0.0))
        )
        for piece in (b"score 1\n", b"score 2\n", b"score 3\n"):
            printed.feed_data(piece)
            while printed._buffer:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        printed.feed_eof()
        await copying
    assert written == [b"score 1\n"]
    assert metrics.OUTPUT_DROPPED._value.get() - before == 16
    said = [one for one in logs if one["event"] == "output_dropped"]
    assert [one["bytes"] for one in said] == [8, 8] and said[0]["what"] == "scorer noisy"
