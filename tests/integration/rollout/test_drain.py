"""A replica is asked to go without haste: nothing more comes in, what it has goes out, and then it is told to end."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from services.rollout.drain import add_drain, drain_replica, why_not_ready
from services.rollout.engines.protocol import Completion, GenerateRequest
from services.rollout.gate import Gate, Serving
from services.rollout.groups import GroupGenerator
from services.rollout.replica import ReplicaState
from tests import builders
from wire.contracts import DropReason, FinishReason, Message, PolicyVersion, VersionSpan, encode
from wire.events import EventLog
from wire.http import admin_app, serve_http
from wire.streams import StreamName
from wire.streams.memory import MemoryBroker
from wire.streams.worker import Worker

VERSION = PolicyVersion(incarnation=1, version=0)
SECONDS = 1.0
AT_ONCE = 2


class SlowEngine:
    """A second a group."""

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        await asyncio.sleep(SECONDS)
        one = Completion(
            token_ids=np.arange(4, dtype=np.int32),
            logprobs=np.full(4, -1.0, np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(start=0, end=4, version=VERSION, weights_digest="d" * 64),),
        )
        return tuple(one for _ in request.seeds)


class World:
    def __init__(self, folder: Path) -> None:
        self.broker, self.gate = MemoryBroker(), Gate()
        engine: Any = SlowEngine()
        self.generator = GroupGenerator(
            *(engine, self.gate, EventLog(folder, "rollout", "a"), lambda _: ""),
            replica_id="rollout-0",
            limit=lambda share: AT_ONCE,
            share=1.0,
            hold_s=1.0,
        )
        for state in (ReplicaState.PENDING_WEIGHTS, ReplicaState.UPDATING):
            self.gate.move(state)
        self.gate.commit(Serving(VERSION, "d" * 64))
        self.worker = Worker(
            *(self.broker, StreamName.PROMPTS, "rollout-0", self.generator.handle),
            service="rollout",
            lease_s=30,
            capacity=self.generator.capacity,
            failure=DropReason.ROLLOUT_FAILED,
        )

    @property
    def made(self) -> int:
        return self.broker.streams[StreamName.ROLLOUTS].added

    def why(self) -> str | None:
        return why_not_ready(self.gate, self.generator)


@asynccontextmanager
async def replica(folder: Path) -> AsyncIterator[tuple[World, int]]:
    world, stop = World(folder), asyncio.Event()
    for index in range(8):
        message = Message(header=builders.header(index), body=builders.prompt())
        await world.broker.add(StreamName.PROMPTS, encode(message))
    app = admin_app("rollout", world.why)
    add_drain(app, world.generator)
    http = await serve_http(app, "127.0.0.1", 0)
    working = asyncio.create_task(world.worker.run(stop))
    try:
        async with asyncio.timeout(10):
            while world.generator.in_flight < AT_ONCE:
                await asyncio.sleep(0.01)
        yield world, http.port
    finally:
        stop.set()
        await working
        await http.stop()


async def test_a_drained_replica_finishes_what_it_has_and_takes_nothing_more(tmp_path: Path) -> None:
    async with replica(tmp_path) as (world, port):
        assert world.why() is None
        before = world.made
        left = await asyncio.to_thread(drain_replica, port, 20.0)
        assert (left, world.generator.in_flight) == (0, 0)
        assert before < world.made <= before + AT_ONCE
        done = world.made
        await asyncio.sleep(2 * SECONDS)
        assert world.made == done, "it took another prompt"
        assert "draining" in str(world.why())


async def test_the_wait_for_it_has_an_end(tmp_path: Path) -> None:
    async with replica(tmp_path) as (_, port):
        began = time.monotonic()
        assert await asyncio.to_thread(drain_replica, port, 0.0) == AT_ONCE
        assert time.monotonic() - began < SECONDS


async def test_the_command_ends_at_once_where_no_replica_is(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "services.rollout.drain", "--port", "9", "--seconds", "60"]
    done = await asyncio.to_thread(subprocess.run, command, timeout=30, check=False)
    assert done.returncode == 0


async def test_only_a_program_of_this_machine_may_ask(tmp_path: Path) -> None:
    async with replica(tmp_path) as (world, port), httpx.AsyncClient(trust_env=False) as client:
        # What a page in a browser can send without asking first.
        answer = await client.post(
            f"http://127.0.0.1:{port}/drain", content="{}", headers={"content-type": "text/plain"}
        )
        assert answer.status_code == 403 and not world.generator.retired
