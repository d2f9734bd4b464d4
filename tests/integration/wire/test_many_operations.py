"""More operations at a time than there are connections: they wait for one, and none is taken for lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.wire.errors import TransientError
from headrace.wire.streams import Entry, Put, StreamName
from headrace.wire.streams.redis import RedisBroker, pools
from headrace.wire.streams.redis.settling import MOST_ENTRIES
from tests.valkey import Valkey

MANY = 300


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Valkey]:
    made = Valkey(tmp_path / "valkey")
    made.start()
    yield made
    made.stop()


async def executed(broker: RedisBroker) -> int:
    stats = await broker._link.writer.info("commandstats")
    return int(stats.get("cmdstat_exec", {}).get("calls", 0))


async def test_many_at_a_time_wait_for_connections_and_all_succeed(server: Valkey) -> None:
    broker = RedisBroker(server.url, "test", retry_deadline_s=60)
    await asyncio.gather(*(broker.add(StreamName.PROMPTS, b"x") for _ in range(MANY)))
    assert (await broker.stats(StreamName.PROMPTS)).length == MANY
    await broker.close()


async def test_a_connection_that_does_not_become_free_is_named(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(pools, "CONNECTION_S", 0.05)
    broker = RedisBroker(server.url, "test", retry_deadline_s=0.01)
    held = await broker._link.writer.connection_pool.get_connection()
    with pytest.raises(TransientError, match=r"waited 0\.05 s for one of 1 connections to the broker"):
        await broker.add(StreamName.PROMPTS, b"x")
    await broker._link.writer.connection_pool.release(held)
    await broker.add(StreamName.PROMPTS, b"x")
    await broker.close()


async def test_the_settles_of_one_turn_are_one_transaction_for_64_and_each_has_its_effect_once(server: Valkey) -> None:
    broker = RedisBroker(server.url, "test", retry_deadline_s=60)
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=60)
    await consumer.read(count=1, block_s=0.01)
    for _ in range(MANY):
        await broker.add(StreamName.PROMPTS, b"x")
    entries: list[Entry] = []
    while len(entries) < MANY:
        entries += await consumer.read(count=MANY, block_s=1.0)
    before = await executed(broker)
    with capture_logs() as logs:
        puts = [Put(stream=StreamName.ROLLOUTS, data=entry.id.encode()) for entry in entries]
        await asyncio.gather(*(consumer.settle(entry, [put]) for entry, put in zip(entries, puts, strict=True)))
    assert await executed(broker) - before == -(-MANY // MOST_ENTRIES)
    assert not logs
    assert (await broker.stats(StreamName.PROMPTS)).pending == 0
    assert sorted(await broker.live(StreamName.ROLLOUTS)) == sorted(put.data for put in puts)
    await broker.close()


async def test_a_settle_that_is_cancelled_costs_the_others_of_its_turn_nothing(server: Valkey) -> None:
    broker = RedisBroker(server.url, "test", retry_deadline_s=60)
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=60)
    await consumer.read(count=1, block_s=0.01)
    for _ in range(2):
        await broker.add(StreamName.PROMPTS, b"x")
    first, second = await consumer.read(count=2, block_s=1.0)
    tasks = [
        asyncio.create_task(consumer.settle(entry, [Put(stream=StreamName.ROLLOUTS, data=entry.id.encode())]))
        for entry in (first, second)
    ]
    asyncio.get_running_loop().call_soon(tasks[0].cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[0].cancelled() and not tasks[1].cancelled()
    assert second.id.encode() in await broker.live(StreamName.ROLLOUTS)
    await broker.close()
