"""An embedded broker whose own disk is full: it answers, refuses all writes, and the supervisor names the disk."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.supervisor.broker import EmbeddedBroker, WriteProbe, embedded, wait_until_up
from headrace.supervisor.process_monitor import Budget, DiskRefusedError, ProcessMonitor
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from tests.small_disk import SmallDisk, small_disk
from tests.waiting import DEADLINE_S

RUN = "full"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, SmallDisk]]:
    (tmp_path / "logs").mkdir()
    broker = embedded(tmp_path, dict(os.environ))
    with small_disk(broker.data, 4) as disk:
        yield broker, disk
    broker.clean()


async def fill(broker: EmbeddedBroker, disk: SmallDisk) -> None:
    """Fills the disk, and adds until the server cannot log what it was given."""
    disk.fill()
    streams = RedisBroker(broker.url, RUN, retry_deadline_s=0.1)
    try:
        for _ in range(20):
            try:
                await streams.add(StreamName.PROMPTS, bytes(4096))
            except Exception as error:
                assert "disk refuses" in str(error)
                return
        raise AssertionError("a server without room takes everything")
    finally:
        await streams.close()


async def test_a_broker_whose_disk_is_full_ends_the_run_and_one_with_room_goes_on(
    made: tuple[EmbeddedBroker, SmallDisk], tmp_path: Path
) -> None:
    broker, disk = made
    look = WriteProbe(broker)
    monitor = ProcessMonitor(
        broker.plan,
        tmp_path,
        ready=lambda seconds: wait_until_up(broker, seconds),
        is_over=None,
        budget=Budget(probe_s=0.2),
        notice=lambda _: None,
        probe=look,
        prepare=broker.prepare,
    )
    task = asyncio.create_task(monitor.run())
    await asyncio.wait_for(monitor.first_ready.wait(), 60)
    assert await look(5.0) == ""
    await fill(broker, disk)
    with pytest.raises(DiskRefusedError, match=r"^broker could not write .*/broker/.*the disk is full.*--resume"):
        await asyncio.wait_for(task, 60)


async def test_a_broker_that_got_room_again_is_not_ended(
    made: tuple[EmbeddedBroker, SmallDisk], tmp_path: Path
) -> None:
    broker, disk = made
    server = await asyncio.create_subprocess_exec(*broker.plan.argv, stdout=asyncio.subprocess.DEVNULL)
    try:
        await wait_until_up(broker, 60)
        await fill(broker, disk)
        disk.make_room()
        look = WriteProbe(broker)
        said = await look(5.0)
        assert said is not None and (said == "" or "refuses writes" in said)
        async with asyncio.timeout(DEADLINE_S):
            while await look(5.0) != "":
                await asyncio.sleep(0.1)
    finally:
        server.kill()
        await server.wait()
