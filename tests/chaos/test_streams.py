"""Groups through the real streams while replies get lost and consumers die: each is taken once, none is left."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.wire.contracts import decode, encode, group_id
from headrace.wire.lifecycle import die_with_parent
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from tests import builders
from tests.proxy import LossyProxy
from tests.valkey import Valkey

GROUPS = 400
KILLS = 16
"""At most: each starts a process, half a second of a CPU."""
STAGE = Path(__file__).with_name("stage.py")


class Stages:
    """Three consumers of `prompts`, one of `rollouts`; the dead come back under their old name or, half, a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names = ["rollout-0", "rollout-1", "rollout-2", "reward-0"]
        self._processes = {name: self._start(name) for name in self._names}
        self._next = itertools.cycle(self._names)
        self.kills = 0

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        way = ("prompts", "rollouts") if name.startswith("rollout") else ("rollouts", "scored")
        command = [sys.executable, str(STAGE), self._url, *way, name]
        return subprocess.Popen(command, preexec_fn=die_with_parent)

    def kill_one(self) -> None:
        name = next(self._next)
        os.kill(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait(60)
        self.kills += 1
        self._processes[name] = self._start(name if self.kills % 2 else f"{name}-{self.kills}")

    def stop(self) -> list[int]:
        for process in self._processes.values():
            process.terminate()
        return [process.wait(60) for process in self._processes.values()]


async def produce(broker: RedisBroker) -> None:
    for index in range(GROUPS):
        await broker.add(StreamName.PROMPTS, encode(builders.prompt_message(index)), sequence=index + 1)


async def take_once(broker: RedisBroker, taken: set[str], duplicates: list[str]) -> None:
    """The last stage: an id counts once, and is acked after it counts."""
    consumer = broker.consumer(StreamName.SCORED, "trainer", lease_s=5.0)
    while len(taken) < GROUPS:
        for entry in await consumer.read(count=50, block_s=0.2):
            name = decode(entry.data).header.group_id
            if name in taken:
                duplicates.append(name)
            taken.add(name)
            await consumer.ack([entry])


@pytest.mark.timeout(400)
async def test_groups_are_taken_once_whatever_dies_or_gets_lost(valkey: Valkey) -> None:
    proxy = LossyProxy(valkey.port, word=b"EXEC", every=7)
    await proxy.start()
    direct = RedisBroker(valkey.url, "test")
    stages = Stages(f"redis://127.0.0.1:{proxy.port}/0")
    taken: set[str] = set()
    duplicates: list[str] = []
    last = asyncio.create_task(take_once(direct, taken, duplicates))
    producer = asyncio.create_task(produce(direct))
    end = time.monotonic() + 240
    try:
        while not last.done() and time.monotonic() < end:
            await asyncio.sleep(0.4)
            if stages.kills < KILLS:
                await asyncio.to_thread(stages.kill_one)
        assert last.done(), f"{len(taken)} of {GROUPS} arrived after {stages.kills} kills"
        await producer
        assert taken == {group_id("test", index) for index in range(GROUPS)}
        assert await nothing_left(direct)
    finally:
        codes = await asyncio.to_thread(stages.stop)
        await proxy.stop()
        await direct.close()
    assert proxy.lost > 20, "the proxy must have lost replies for this test to mean anything"
    assert stages.kills > 5
    # One that was started a moment ago may not have taken the signal over yet.
    assert set(codes) <= {0, -signal.SIGTERM}


async def nothing_left(broker: RedisBroker) -> bool:
    """Duplicates of slow zombies may still be under way for a moment; then nothing is pending."""
    for _ in range(100):
        stats = [await broker.stats(stream) for stream in (StreamName.PROMPTS, StreamName.ROLLOUTS)]
        if all(s.pending == 0 and s.undelivered == 0 for s in stats):
            return True
        await asyncio.sleep(0.2)
    return False
