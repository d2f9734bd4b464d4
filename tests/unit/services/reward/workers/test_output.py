"""What users' scorers print does not fill the disk."""

import asyncio

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
