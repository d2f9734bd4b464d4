"""A broker behind Sentinels: work goes on with the server that takes the place of one that died or was replaced."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker, server_facts
from tests.ports import free_port
from tests.sentinel import Watched
from tests.waiting import until


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def settled(broker: RedisBroker, data: bytes, sequence: int) -> None:
    """One prompt is issued, taken and settled."""
    await broker.add(StreamName.PROMPTS, data, sequence=sequence)
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    entries = []
    while not entries:
        try:
            entries = await consumer.read(count=1, block_s=1)
        except TransientError:
            await asyncio.sleep(0.05)
    (entry,) = entries
    assert entry.data == data
    await consumer.settle(entry, [Put(stream=StreamName.ROLLOUTS, data=data)])


async def test_the_place_of_a_server_that_dies_is_taken(watched: Watched) -> None:
    broker = RedisBroker(watched.url, "r", retry_deadline_s=60)
    await broker.check(20)
    await settled(broker, b"one", 1)
    generation = await broker.generation()
    until(watched.copied, "the replica to have it")
    watched.first.kill()
    async with asyncio.timeout(90):
        await settled(broker, b"two", 2)
        assert watched.writable() == watched.second.port
        # The orchestrator sees it as a server that may have lost data, and issues again what is missing.
        assert await broker.generation() != generation
    assert await broker.live(StreamName.ROLLOUTS) == [b"one", b"two"]
    assert (await server_facts(watched.url, timeout_s=20)).version
    await broker.close()


async def test_connections_leave_a_server_that_takes_no_more_writes(watched: Watched) -> None:
    broker = RedisBroker(watched.url, "r", retry_deadline_s=60)
    await settled(broker, b"one", 1)
    until(watched.copied, "the replica to have it")
    watched.fail_over()
    until(lambda: watched.writable() == watched.second.port, "the other server")
    async with asyncio.timeout(90):
        await settled(broker, b"two", 2)
    assert await broker.live(StreamName.ROLLOUTS) == [b"one", b"two"]
    await broker.close()


async def test_unreachable_sentinels_and_unknown_masters_are_reported_at_the_deadline(watched: Watched) -> None:
    for url in (f"redis+sentinel://127.0.0.1:{free_port()}/the-broker", watched.url.replace("the-broker", "another")):
        broker = RedisBroker(url, "r", retry_deadline_s=1)
        with pytest.raises(TransientError, match="No master found for"):
            await broker.check(2)
        await broker.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://10.0.0.4:26379",
        "redis+sentinel://user:pass-phrase@10.0.0.4:26379,:7/name/0",
        "redis+sentinel://user:pass-phrase@10.0.0.4:x/name/0",
        "redis+sentinel://user:pass-phrase@10.0.0.4/name/zero",
    ],
)
def test_a_url_without_sentinel_or_name_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/0") as told:
        RedisBroker(url, "r")
    assert "pass-phrase" not in str(told.value)
