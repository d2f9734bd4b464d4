"""The end of a process of several parts: the first hands back what it has."""

import asyncio

import pytest

from headrace.wire.process.lifecycle import Shutdown, until_first_end


@pytest.mark.parametrize(("close_s", "handed_back"), [(0.05, False), (None, True)])
async def test_the_first_part_may_hand_back_within_its_limit(close_s: float | None, handed_back: bool) -> None:
    shutdown, done = Shutdown(), []

    async def worker() -> None:
        await shutdown.event.wait()
        await asyncio.sleep(0.3)
        done.append("handed back")

    asyncio.get_running_loop().call_later(0.05, shutdown.event.set)
    await until_first_end(shutdown, lambda: None, worker(), close_s=close_s)
    assert bool(done) == handed_back


async def test_a_failure_while_it_hands_back_is_raised() -> None:
    shutdown = Shutdown()

    async def worker() -> None:
        await shutdown.event.wait()
        await asyncio.sleep(0.05)
        raise OSError("the broker is away")

    shutdown.event.set()
    with pytest.raises(OSError, match="away"):
        await until_first_end(shutdown, lambda: None, worker())
