"""Two replicas of unequal speed: the faster one gets more prompts, and batches do not wait for the slower one."""

import asyncio
import functools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.orchestrator.state.registry import Registry
from headrace.services.rollout.engines.protocol import Completion, GenerateRequest
from headrace.services.rollout.replica.capacity import RowPool, group_limit
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.contracts import (
    DropReason,
    FinishReason,
    Message,
    PolicyVersion,
    RolloutGroup,
    VersionSpan,
    decode,
    encode,
)
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import StreamName
from headrace.wire.streams.memory import MemoryBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests import builders
from tests.virtual_time import run_in_own_time

TOKENS, BATCH, BATCHES = 8, 12, 8
VERSION = PolicyVersion(incarnation=1, version=0)


class PacedEngine:
    """Takes its time a token, whatever else it decodes: as a GPU does that is far from full."""

    def __init__(self, tokens_per_second: float) -> None:
        self._seconds = TOKENS / tokens_per_second

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        await asyncio.sleep(self._seconds)
        one = Completion(
            token_ids=np.arange(TOKENS, dtype=np.int32),
            logprobs=np.full(TOKENS, -1.0, np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(start=0, end=TOKENS, version=VERSION, weights_digest="d" * 64),),
        )
        return tuple(one for _ in request.seeds)


class Replica:
    def __init__(self, name: str, speed: float, broker: MemoryBroker, registry: Registry, folder: Path) -> None:
        self.name, self._registry = name, registry
        gate = Gate()
        engine: Any = PacedEngine(speed)
        limit = functools.partial(
            group_limit, max_rows=64, group_size=2, batch_groups=BATCH, max_staleness=0, deterministic=False
        )
        self.generator = GroupGenerator(
            engine,
            gate,
            EventLog(folder, name, "a"),
            lambda _: "",
            replica_id=name,
            limit=limit,
            rows=RowPool(64, 2),
            share=0.5,
            hold_s=1,
        )
        for state in (ReplicaState.PENDING_WEIGHTS, ReplicaState.UPDATING):
            gate.move(state)
        gate.commit(Serving(VERSION, "d" * 64))
        self.worker = Worker(
            broker,
            StreamName.PROMPTS,
            name,
            self.generator.handle,
            service="rollout",
            lease_s=30,
            capacity=self.generator.capacity,
            failure=DropReason.ROLLOUT_FAILED,
        )
        registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id=name), time.monotonic())

    def beat(self) -> None:
        """A heartbeat and its answer, without the wire."""
        now = time.monotonic()
        self._registry.heartbeat(
            pb.HeartbeatRequest(
                replica_id=self.name,
                boot_id=self.name,
                state=pb.REPLICA_STATE_SERVING,
                speed=self.generator.speed.read(),
            ),
            now,
        )
        self.generator.take_share(self._registry.share(self.name, now) or 0.5)


def test_the_faster_replica_gets_more_prompts_of_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its speed is what a replica measures by the clock: here nothing but its engine takes time.
    taken = run_in_own_time(lambda: batches_of_two(tmp_path), monkeypatch)
    assert taken["fast"] > 2 * taken["slow"] > 0, taken


async def batches_of_two(folder: Path) -> Counter[str]:
    """How many prompts each has taken, but for the first two batches."""
    broker, registry, stop = MemoryBroker(), Registry(lease_s=30), asyncio.Event()
    replicas = [Replica(n, speed, broker, registry, folder) for n, speed in (("fast", 200.0), ("slow", 50.0))]
    working = [asyncio.create_task(replica.worker.run(stop)) for replica in replicas]
    made = broker.streams[StreamName.ROLLOUTS]
    for batch in range(BATCHES):
        for replica in [*replicas, *replicas]:
            replica.beat()
        for index in range(BATCH):
            await broker.add(
                StreamName.PROMPTS,
                encode(Message(header=builders.header(batch * BATCH + index), body=builders.prompt())),
            )
        async with asyncio.timeout(90):
            while made.added < (batch + 1) * BATCH:
                await asyncio.sleep(0.005)
    stop.set()
    await asyncio.gather(*working)
    bodies = [decode(data).body for data in made.entries.values()]
    return Counter(body.replica_id for body in bodies[2 * BATCH :] if isinstance(body, RolloutGroup))
