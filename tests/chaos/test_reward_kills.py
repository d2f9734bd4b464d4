"""SIGKILL of the reward service, twenty times in the middle of its work: no group is lost, none counts twice."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import psutil
import pytest

from headrace.wire.contracts import Message, ScoredGroup, decode, encode
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from tests import builders
from tests.reward_service import RewardProcess
from tests.valkey import Valkey

KILLS, GROUPS = 20, 400
SLOWLY = """
import pathlib, time
def score(completion, number, **_):
    time.sleep(0.01)
    return number / 1000
"""


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.long
async def test_twenty_kills_in_the_middle_of_the_work_lose_and_double_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow_rewards.py").write_text(SLOWLY)
    valkey = Valkey(tmp_path / "broker")
    valkey.start()
    broker = RedisBroker(valkey.url, "test")
    reward = {
        "scorers": [{"name": "slow_rewards:score"}],
        "path": str(tmp_path),
        "concurrency": 4,
    }
    service = RewardProcess(tmp_path, valkey.url, reward, lease_s=1.5)
    draw = random.Random(3)
    try:
        for index in range(GROUPS):
            message = Message(header=builders.header(index), body=builders.group(index, number=index))
            await broker.add(StreamName.ROLLOUTS, encode(message), sequence=index + 1)
        orphans: list[psutil.Process] = []
        kills = 0
        while kills < KILLS:
            service.start()
            begun = await _until_busy(broker, service)
            await asyncio.sleep(draw.uniform(0.0, 0.05))
            assert service.process is not None
            orphans += children(service.process.pid)
            service.kill()
            kills += begun
        service.start()
        ends = await _all_scored(broker)
        assert service.stop() == 0
        assert Counter(end.header.group_index for end in ends) == dict.fromkeys(range(GROUPS), 1)
        for end in ends:
            assert isinstance(end.body, ScoredGroup)
            assert {score.value for score in end.body.scores} == {end.header.group_index / 1000}
        assert await broker.live(StreamName.DEAD) == []
        assert (await broker.stats(StreamName.ROLLOUTS)).pending == 0
        assert [one for one in orphans if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        service.close()
        await broker.close()
        valkey.stop()


async def _until_busy(broker: RedisBroker, service: RewardProcess) -> bool:
    """Waits until this life has settled something and has groups in hand; False if all are scored already."""
    before = (await broker.stats(StreamName.SCORED)).length
    async with asyncio.timeout(120):
        while True:
            assert service.process is not None and service.process.poll() is None, service.log.read_text()
            stats = await broker.stats(StreamName.ROLLOUTS)
            if (await broker.stats(StreamName.SCORED)).length > before and stats.pending:
                return True
            assert stats.pending or stats.undelivered, "all groups were scored before the last kill: more are needed"
            await asyncio.sleep(0.005)


async def _all_scored(broker: RedisBroker) -> list[Message]:
    async with asyncio.timeout(180):
        while (await broker.stats(StreamName.SCORED)).length < GROUPS:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
    return [decode(data) for data in await broker.live(StreamName.SCORED)]
