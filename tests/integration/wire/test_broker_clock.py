"""A broker whose wall clock is set an hour forward or back: idle times of claims are by that clock."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.streams import Consumer, Entry, StreamName
from headrace.wire.streams.redis import RedisBroker
from tests.faketime import HOUR_S, MovedClock
from tests.valkey import Valkey

LEASE_S = 0.5


@pytest.fixture
def clock(tmp_path: Path) -> MovedClock:
    return MovedClock(tmp_path / "clock")


@pytest.fixture
def server(clock: MovedClock, tmp_path: Path) -> Iterator[Valkey]:
    made = Valkey(tmp_path / "valkey", variables=clock.variables)
    made.start()
    yield made
    made.stop()


async def entries_of(consumer: Consumer, count: int) -> list[Entry]:
    """So many entries, however many reads they take: the first one makes the stream's group."""
    found: list[Entry] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.read(count=count, block_s=0.05)
    return found


async def move(clock: MovedClock, broker: RedisBroker, seconds: int) -> None:
    """Sets the server's clock, and waits until the server has noticed."""
    clock.move(seconds)
    async with asyncio.timeout(60):
        while abs((await broker._link.writer.time())[0] - time.time() - seconds) > HOUR_S / 2:
            await asyncio.sleep(0.05)


async def test_a_dead_consumers_entries_are_reclaimed_in_time_after_a_clock_set_back(
    server: Valkey, clock: MovedClock
) -> None:
    broker = RedisBroker(server.url, "test")
    await broker.add(StreamName.PROMPTS, b"one", sequence=1)
    dead = broker.consumer(StreamName.PROMPTS, "dead", lease_s=LEASE_S)
    assert [entry.data for entry in await entries_of(dead, 1)] == [b"one"]
    await move(clock, broker, -HOUR_S)
    other = broker.consumer(StreamName.PROMPTS, "other", lease_s=LEASE_S)
    found = await entries_of(other, 1)
    assert [(entry.data, entry.deliveries) for entry in found] == [(b"one", 2)]
    await broker.close()


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
async def test_a_renewing_consumer_keeps_its_entries_while_the_clock_moves(
    server: Valkey, clock: MovedClock, seconds: int
) -> None:
    broker = RedisBroker(server.url, "test")
    await broker.add(StreamName.PROMPTS, b"one", sequence=1)
    live = broker.consumer(StreamName.PROMPTS, "live", lease_s=LEASE_S)
    entries = await entries_of(live, 1)
    async with asyncio.TaskGroup() as tasks:
        moving = tasks.create_task(move(clock, broker, seconds))
        while not moving.done():
            await live.renew(entries)
            await asyncio.sleep(0.05)
    await live.renew(entries)
    other = broker.consumer(StreamName.PROMPTS, "other", lease_s=LEASE_S)
    end = time.monotonic() + 6 * LEASE_S
    while time.monotonic() < end:
        assert await other.read(count=1, block_s=0.05) == []
        await live.renew(entries)
    await live.settle(entries[0], [])
    assert (await broker.stats(StreamName.PROMPTS)).pending == 0
    await broker.close()


async def test_entries_keep_their_order_when_the_clock_is_set_back(server: Valkey, clock: MovedClock) -> None:
    broker = RedisBroker(server.url, "test")
    await broker.add(StreamName.ROLLOUTS, b"one")
    await move(clock, broker, -HOUR_S)
    await broker.add(StreamName.ROLLOUTS, b"two")
    await move(clock, broker, HOUR_S)
    await broker.add(StreamName.ROLLOUTS, b"three")
    reader = broker.consumer(StreamName.ROLLOUTS, "reader", lease_s=LEASE_S)
    assert [entry.data for entry in await entries_of(reader, 3)] == [b"one", b"two", b"three"]
    await broker.close()
