"""The one consumer loop: settles, hands back, buries, and lets nothing vanish when it stops."""

import asyncio
import dataclasses
import zlib

import pytest

from headrace.wire.contracts import DropReason, Message, Purpose, Tombstone, decode, encode
from headrace.wire.errors import DiskError
from headrace.wire.host import disk_fault
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.worker import MAX_DELIVERIES, MAX_FAILURES, HandBack, Handler, Worker, bury_puts
from headrace.wire.v1 import message_pb2
from tests import builders
from tests.memory_broker import MemoryBroker
from tests.virtual_time import run_in_own_time


def worker(broker: MemoryBroker, handle: Handler, *, room: int = 4, name: str = "w", lease_s: float = 5.0) -> Worker:
    return Worker(
        broker,
        StreamName.PROMPTS,
        name,
        handle,
        service="test",
        lease_s=lease_s,
        capacity=lambda in_flight: room - in_flight,
        failure=DropReason.ROLLOUT_FAILED,
    )


async def running(broker: MemoryBroker, handle: Handler, until: "asyncio.Future[None] | None" = None) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(worker(broker, handle).run(stop))
    for _ in range(300):
        await asyncio.sleep(0.01)
        stats = await broker.stats(StreamName.PROMPTS)
        if until.done() if until else (not stats.pending and not stats.undelivered):
            break
    stop.set()
    await task


async def pass_on(message: Message) -> list[Put]:
    return [Put(stream=StreamName.ROLLOUTS, data=encode(message))]


async def test_effects_and_ack_are_one_transaction() -> None:
    broker = MemoryBroker()
    for index in range(10):
        await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(index)))
    await running(broker, pass_on)
    ids = [decode(data).header.group_index for data in await broker.live(StreamName.ROLLOUTS)]
    assert sorted(ids) == list(range(10))


async def test_a_worker_takes_no_more_entries_than_it_has_room_for() -> None:
    broker = MemoryBroker()
    for index in range(10):
        await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(index)))
    at_once, most = 0, 0

    async def slow(message: Message) -> list[Put]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return []

    await running(broker, slow)
    assert most == 4


def test_a_full_worker_asks_for_room_seldom_and_at_once_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker, opened, asked = MemoryBroker(), False, 0
        await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))

        def room(in_flight: int) -> int:
            nonlocal asked
            asked += 1
            return int(opened)

        one = Worker(
            broker, StreamName.PROMPTS, "w", pass_on, service="test", lease_s=5.0, capacity=room,
            failure=DropReason.ROLLOUT_FAILED,
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(one.run(stop))
        await asyncio.sleep(1.005)
        assert asked <= 12
        opened = True
        one.look_again.set()
        await asyncio.sleep(0.001)
        assert len(await broker.live(StreamName.ROLLOUTS)) == 1
        stop.set()
        await task

    run_in_own_time(main, monkeypatch)


async def test_a_handed_back_entry_does_not_count_as_a_failure() -> None:
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))
    seen = 0

    async def picky(message: Message) -> list[Put]:
        nonlocal seen
        seen += 1
        if seen < 8:
            raise HandBack("not now", delay_s=0.0)
        return await pass_on(message)

    await running(broker, picky)
    assert seen == 8
    assert len(await broker.live(StreamName.ROLLOUTS)) == 1
    assert await broker.live(StreamName.SCORED) == []


async def test_three_reported_failures_end_a_group_with_a_tombstone() -> None:
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(7)))

    async def broken(message: Message) -> list[Put]:
        raise OSError("no luck")

    await running(broker, broken)
    (end,) = [decode(data) for data in await broker.live(StreamName.SCORED)]
    assert isinstance(end.body, Tombstone)
    assert (end.body.reason, end.header.group_index) == (DropReason.ROLLOUT_FAILED, 7)


async def test_unreported_deliveries_end_as_a_crash_loop_only_after_twenty() -> None:
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(7)))
    crashing = broker.consumer(StreamName.PROMPTS, "w", lease_s=0.0)
    for _ in range(MAX_DELIVERIES - 1):
        assert await crashing.read(count=1, block_s=0.1)
    await running(broker, pass_on)
    assert len(await broker.live(StreamName.ROLLOUTS)) == 1
    assert await broker.live(StreamName.SCORED) == []

    again = MemoryBroker()
    await again.add(StreamName.PROMPTS, encode(builders.prompt_message(7)))
    crashing = again.consumer(StreamName.PROMPTS, "w", lease_s=0.0)
    for _ in range(MAX_DELIVERIES):
        assert await crashing.read(count=1, block_s=0.1)
    await running(again, pass_on)
    (end,) = [decode(data) for data in await again.live(StreamName.SCORED)]
    assert isinstance(end.body, Tombstone)
    assert end.body.reason is DropReason.CRASH_LOOP


async def test_a_stop_hands_everything_back_at_once() -> None:
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))

    async def endless(message: Message) -> list[Put]:
        await asyncio.sleep(60)
        raise AssertionError

    stop = asyncio.Event()
    task = asyncio.create_task(worker(broker, endless).run(stop))
    await asyncio.sleep(0.05)
    stop.set()
    async with asyncio.timeout(30):
        await task
    (entry,) = await broker.consumer(StreamName.PROMPTS, "other", lease_s=60).read(count=1, block_s=0.1)
    assert entry.deliveries == 1


def test_long_work_keeps_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    async def long(message: Message) -> list[Put]:
        await asyncio.sleep(2.0)
        return await pass_on(message)

    async def main() -> None:
        broker = MemoryBroker()
        await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))
        stop = asyncio.Event()
        task = asyncio.create_task(worker(broker, long, lease_s=0.6).run(stop))
        await asyncio.sleep(0.05)
        thief = broker.consumer(StreamName.PROMPTS, "thief", lease_s=0.6)
        assert await thief.read(count=1, block_s=1.6) == []
        async with asyncio.timeout(30):
            while not await broker.live(StreamName.ROLLOUTS):
                await asyncio.sleep(0.05)
        stop.set()
        await task
        assert len(await broker.live(StreamName.ROLLOUTS)) == 1

    run_in_own_time(main, monkeypatch)


async def test_a_disk_that_refuses_ends_the_worker_and_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_fault, "_noted", [])
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))

    async def full(message: Message) -> list[Put]:
        raise DiskError("/run/events: the disk is full")

    with pytest.raises(DiskError, match="/run/events"):
        await asyncio.wait_for(worker(broker, full).run(asyncio.Event()), 60)
    assert not await broker.live(StreamName.DEAD) and len(await broker.live(StreamName.PROMPTS)) == 1


def damaged(message: Message) -> bytes:
    data = bytearray(encode(message))
    data[-1] ^= 1
    return bytes(data)


async def left_by(data: bytes) -> tuple[list[Message], int]:
    """What a worker makes of one entry: ends of groups, and messages for people."""
    broker = MemoryBroker()
    await broker.add(StreamName.PROMPTS, data)
    await running(broker, pass_on)
    assert await broker.live(StreamName.ROLLOUTS) == []
    ends = [*await broker.live(StreamName.SCORED), *await broker.live(StreamName.EVALUATED)]
    return [decode(end) for end in ends], len(await broker.live(StreamName.DEAD))


async def test_a_message_damaged_in_transit_ends_no_group() -> None:
    assert await left_by(damaged(builders.prompt_message(3))) == ([], 1)


async def test_a_group_that_comes_damaged_every_time_is_poison() -> None:
    message = builders.prompt_message(3)
    again = Message(header=dataclasses.replace(message.header, attempt=MAX_FAILURES - 1), body=message.body)
    (end,), dead = await left_by(damaged(again))
    assert isinstance(end.body, Tombstone) and end.body.reason is DropReason.POISON and dead == 1


async def test_a_whole_message_that_breaks_the_contract_is_poison_at_once() -> None:
    entry = message_pb2.StreamMessage.FromString(encode(builders.prompt_message(3)))
    entry.prompt_group = b"\xff\xff"
    entry.header.checksum = zlib.crc32(entry.prompt_group)
    entry.header.ClearField("header_checksum")
    (end,), dead = await left_by(entry.SerializeToString())
    assert isinstance(end.body, Tombstone) and dead == 1


@pytest.mark.parametrize(("purpose", "end"), [(Purpose.TRAIN, StreamName.SCORED), (Purpose.EVAL, StreamName.EVALUATED)])
def test_a_tombstone_goes_to_the_stream_that_awaits_the_group(purpose: Purpose, end: StreamName) -> None:
    data = encode(Message(header=builders.header(1, purpose=purpose), body=builders.prompt()))
    puts = bury_puts(data, DropReason.POISON, "x" * 9999, "test")
    assert [put.stream for put in puts] == [end, StreamName.DEAD]
    assert puts[1].data == data
