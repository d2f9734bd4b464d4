"""The stream protocol, held by both implementations."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.wire.errors import ConfigError
from headrace.wire.streams import Broker, Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.redis.still_claims import Claim
from tests.memory_broker import MemoryBroker
from tests.valkey import Valkey


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """One for all tests that do not harm it: each has a run of its own there."""
    found = Valkey(tmp_path_factory.mktemp("valkey"))
    found.start()
    yield found
    found.stop()


@pytest.fixture(params=["memory", "redis"])
async def broker(request: pytest.FixtureRequest, server: Valkey) -> AsyncIterator[Broker]:
    if request.param == "memory":
        yield MemoryBroker()
        return
    redis = RedisBroker(server.url, request.node.name, retry_deadline_s=5)
    yield redis
    await redis.close()


async def test_an_entry_is_delivered_once_within_its_lease(broker: Broker) -> None:
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=30)
    await one.read(count=1, block_s=0.01)
    await broker.add(StreamName.PROMPTS, b"a")
    assert [entry.data for entry in await one.read(count=5, block_s=0.5)] == [b"a"]
    assert await two.read(count=5, block_s=0.05) == []


async def test_a_cancelled_reader_always_ends(broker: Broker) -> None:
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    await consumer.read(count=1, block_s=0.01)

    async def read_on() -> None:
        while True:
            await consumer.read(count=1, block_s=0.05)

    for moment in range(30):
        reading = asyncio.create_task(read_on())
        for _ in range(moment):
            await asyncio.sleep(0)
        reading.cancel()
        done, _ = await asyncio.wait([reading], timeout=30)
        assert done, f"still reading, cancelled after {moment} turns of the loop"


async def test_the_memory_that_entries_take_is_reported(broker: Broker) -> None:
    before = await broker.memory()
    # A server of the tests has no `maxmemory`: it names its machine's memory. The other one has no limit at all.
    assert before.limit_bytes == 0 or before.limit_bytes > before.used_bytes > 0
    await broker.add(StreamName.PROMPTS, b"a" * 3_000_000)
    assert (await broker.memory()).used_bytes > before.used_bytes + 2_900_000


async def test_an_orphan_goes_to_another_consumer_and_counts_its_deliveries(broker: Broker) -> None:
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=0.1)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=0.1)
    await broker.add(StreamName.PROMPTS, b"a")
    assert await one.read(count=1, block_s=0.5) or await one.read(count=1, block_s=0.5)
    await asyncio.sleep(0.15)
    (entry,) = await two.read(count=1, block_s=0.5)
    assert (entry.data, entry.deliveries) == (b"a", 2)


async def test_a_renewed_claim_is_not_reclaimed_and_a_lost_one_cannot_be_renewed(broker: Broker) -> None:
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=3)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=3)
    await broker.add(StreamName.PROMPTS, b"a")
    taken = await one.read(count=1, block_s=0.5) or await one.read(count=1, block_s=0.5)
    for _ in range(8):
        await asyncio.sleep(0.5)
        await one.renew(taken)
        assert await two.read(count=1, block_s=0.01) == []
    await asyncio.sleep(3.1)
    assert len(await two.read(count=1, block_s=5)) == 1
    await one.renew(taken)
    assert len(await two.reclaim_own()) == 1


async def test_a_released_entry_is_taken_at_once_and_not_counted(broker: Broker) -> None:
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=30)
    await broker.add(StreamName.PROMPTS, b"a")
    taken = await one.read(count=1, block_s=0.5) or await one.read(count=1, block_s=0.5)
    await one.release(taken)
    (entry,) = await two.read(count=1, block_s=0.5)
    assert entry.deliveries == 1


async def test_a_released_entry_is_delivered_before_a_new_one_despite_many_pending(broker: Broker) -> None:
    busy = broker.consumer(StreamName.PROMPTS, "busy", lease_s=30)
    await busy.read(count=1, block_s=0.01)
    for number in range(40):
        await broker.add(StreamName.PROMPTS, str(number).encode())
    taken = await busy.read(count=40, block_s=0.5)
    assert len(taken) == 40
    await busy.release(taken[35:])
    await broker.add(StreamName.PROMPTS, b"new")
    other = broker.consumer(StreamName.PROMPTS, "other", lease_s=30)
    found = [(await other.read(count=1, block_s=0.5))[0].data for _ in range(6)]
    assert found == [b"35", b"36", b"37", b"38", b"39", b"new"]


async def test_failures_are_counted_across_consumers(broker: Broker) -> None:
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=30)
    await broker.add(StreamName.PROMPTS, b"a")
    taken = await one.read(count=1, block_s=0.5) or await one.read(count=1, block_s=0.5)
    assert await one.fail(taken[0]) == 1
    (again,) = await two.read(count=1, block_s=0.5)
    assert await two.fail(again) == 2


async def test_settle_moves_a_group_on_and_trim_removes_only_acked_entries(broker: Broker) -> None:
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    await consumer.read(count=1, block_s=0.01)
    for data in (b"a", b"b", b"c"):
        await broker.add(StreamName.PROMPTS, data)
    first, second = await consumer.read(count=2, block_s=0.5)
    await consumer.settle(first, [Put(stream=StreamName.ROLLOUTS, data=b"A")])
    assert await broker.live(StreamName.PROMPTS) == [b"b", b"c"]
    assert await broker.live(StreamName.ROLLOUTS) == [b"A"]
    assert await broker.trim(StreamName.PROMPTS) == 1
    assert await broker.trim(StreamName.ROLLOUTS) == 0
    stats = await broker.stats(StreamName.PROMPTS)
    assert (stats.length, stats.pending, stats.undelivered) == (2, 1, 1)
    await consumer.ack([second])
    assert await broker.live(StreamName.PROMPTS) == [b"c"]


async def test_an_add_with_a_sequence_number_happens_once(broker: Broker) -> None:
    for _ in range(3):
        await broker.add(StreamName.PROMPTS, b"a", sequence=1)
    await broker.add(StreamName.PROMPTS, b"b", sequence=2)
    assert await broker.live(StreamName.PROMPTS) == [b"a", b"b"]
    assert await broker.last_sequence(StreamName.PROMPTS) == 2


async def test_the_newest_entries_and_their_notes_are_read_without_being_consumed(broker: Broker) -> None:
    worker = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    assert await worker.read(count=1, block_s=0.01) == []
    for number in range(5):
        await broker.add(StreamName.PROMPTS, bytes([number]))
        (entry,) = await worker.read(count=1, block_s=1)
        await worker.settle(entry, [Put(stream=StreamName.DEAD, data=entry.data, note=f"note {number}" * (number > 0))])
    newest = await broker.newest(StreamName.DEAD, before="", count=3)
    assert [(entry.data, entry.note) for entry in newest] == [(bytes([n]), f"note {n}") for n in (4, 3, 2)]
    rest = await broker.newest(StreamName.DEAD, before=newest[-1].id, count=9)
    assert [(entry.data, entry.note) for entry in rest] == [(b"\x01", "note 1"), (b"\x00", "")]
    assert await broker.newest(StreamName.DEAD, before=rest[-1].id, count=9) == []
    assert (await broker.stats(StreamName.DEAD)).length == 5


async def test_a_reborn_consumer_gets_its_own_entries_back(broker: Broker) -> None:
    before = broker.consumer(StreamName.SCORED, "trainer", lease_s=30)
    await broker.add(StreamName.SCORED, b"a")
    assert await before.read(count=1, block_s=0.5) or await before.read(count=1, block_s=0.5)
    reborn = broker.consumer(StreamName.SCORED, "trainer", lease_s=30)
    (entry,) = await reborn.reclaim_own()
    assert (entry.data, entry.deliveries) == (b"a", 2)


async def test_the_broker_comes_back_from_sigkill_with_everything(valkey: Valkey) -> None:
    broker = RedisBroker(valkey.url, "test")
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    await consumer.read(count=1, block_s=0.01)
    await broker.add(StreamName.PROMPTS, b"a", sequence=1)
    (entry,) = await consumer.read(count=1, block_s=0.5)
    life = await broker.generation()
    valkey.kill()
    valkey.start()
    await consumer.settle(entry, [Put(stream=StreamName.ROLLOUTS, data=b"A")])
    assert await broker.live(StreamName.ROLLOUTS) == [b"A"]
    assert await broker.live(StreamName.PROMPTS) == []
    assert await broker.generation() != life
    await broker.close()


async def test_a_late_renewal_does_not_steal_an_entry_back_from_its_new_consumer(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = RedisBroker(valkey.url, "test")
    one = broker.consumer(StreamName.PROMPTS, "one", lease_s=1)
    two = broker.consumer(StreamName.PROMPTS, "two", lease_s=1)
    await broker.add(StreamName.PROMPTS, b"a")
    taken = await one.read(count=1, block_s=0.5) or await one.read(count=1, block_s=0.5)
    await asyncio.sleep(1.1)

    look = one._claim

    async def looked(entry_id: str) -> Claim | None:
        """It is still its own when it looks; then the other claims it."""
        found = await look(entry_id)
        assert found is not None and found.owner == "one"
        assert len(await two.read(count=1, block_s=0.01)) == 1
        return found

    monkeypatch.setattr(one, "_claim", looked)
    await one.renew(taken)
    assert len(await two.reclaim_own()) == 1 and await one.reclaim_own() == []
    await broker.close()


async def test_a_wiped_server_gets_its_consumer_groups_again(valkey: Valkey) -> None:
    broker = RedisBroker(valkey.url, "test")
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    await consumer.read(count=1, block_s=0.01)
    await broker.add(StreamName.PROMPTS, b"a", sequence=1)
    (entry,) = await consumer.read(count=1, block_s=0.5)
    valkey.wipe()
    valkey.start()
    await consumer.renew([entry])
    await consumer.release([entry])
    assert await consumer.read(count=1, block_s=0.01) == []
    await broker.add(StreamName.PROMPTS, b"b", sequence=2)
    assert [again.data for again in await consumer.read(count=1, block_s=0.5)] == [b"b"]
    await broker.close()


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru"), ("cluster-enabled", "yes", "a cluster")],
)
async def test_a_server_that_evicts_and_a_cluster_are_refused(
    tmp_path: Path, option: str, value: str, reason: str
) -> None:
    (server := Valkey(tmp_path, f"--{option}", value)).start()
    broker = RedisBroker(server.url, "run")
    try:
        with pytest.raises(ConfigError, match=reason):
            await broker.check(30)
    finally:
        await broker.close()
        server.stop()
