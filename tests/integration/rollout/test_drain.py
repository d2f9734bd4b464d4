"""A replica is asked to go without haste: nothing more comes in, what it has goes out, and then it is told to end."""

import asyncio
import functools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import numpy as np
import pytest

from headrace.services.orchestrator.state.registry import Registry
from headrace.services.rollout.engines.protocol import Completion, EngineStats, GenerateRequest, Routes
from headrace.services.rollout.replica.capacity import RowPool
from headrace.services.rollout.replica.drain import add_drain, drain_replica, why_not_ready
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.heartbeat import Heartbeat, Identity
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.access import process
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens
from headrace.wire.contracts import DropReason, FinishReason, Message, PolicyVersion, VersionSpan, encode
from headrace.wire.http import admin_app, serve_http
from headrace.wire.peers.rpc import serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import StreamName
from headrace.wire.streams.worker import Worker
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import (
    OrchestratorServiceServicer,
    add_OrchestratorServiceServicer_to_server,
)
from tests import builders
from tests.memory_broker import MemoryBroker
from tests.waiting import until_async

VERSION = PolicyVersion(incarnation=1, version=0)
AT_ONCE = 2
OTHERS = sorted(set(Role) - {Role.ROLLOUT, Role.OPERATOR})
"""Roles that may not retire a replica."""


class HeldEngine:
    """Finishes no group before it is let."""

    name, dtype, routes, first_verify_s = "held", "float32", Routes(), 0.0

    def __init__(self) -> None:
        self.may_finish = asyncio.Event()

    def stats(self) -> EngineStats:
        return EngineStats(**{one.name: 0 for one in fields(EngineStats)})

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        await self.may_finish.wait()
        one = Completion(
            token_ids=np.arange(4, dtype=np.int32),
            logprobs=np.full(4, -1.0, np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(start=0, end=4, version=VERSION, weights_digest="d" * 64),),
        )
        return tuple(one for _ in request.seeds)


class World:
    def __init__(self, folder: Path, hold_s: float) -> None:
        self.broker, self.gate = MemoryBroker(), Gate()
        self.engine: Any = HeldEngine()
        self.generator = GroupGenerator(
            *(self.engine, self.gate, EventLog(folder, "rollout", "a"), lambda _: ""),
            replica_id="rollout-0",
            limit=lambda share: AT_ONCE,
            share=1.0,
            rows=RowPool(64, 2),
            hold_s=hold_s,
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
async def replica(folder: Path, *, min_version: int = 0, hold_s: float = 1.0) -> AsyncIterator[tuple[World, int]]:
    world, stop = World(folder, hold_s), asyncio.Event()
    for index in range(8):
        message = Message(header=builders.header(index), body=replace(builders.prompt(), min_version=min_version))
        await world.broker.add(StreamName.PROMPTS, encode(message))
    app = admin_app("rollout", world.why)
    add_drain(app, world.generator)
    http = await serve_http(app, "127.0.0.1", 0)
    working = asyncio.create_task(world.worker.run(stop))
    try:
        async with asyncio.timeout(60):
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
        draining = asyncio.create_task(asyncio.to_thread(drain_replica, port, 60.0))
        await until_async(lambda: world.generator.retired)
        assert (world.made, world.generator.in_flight) == (0, AT_ONCE)
        world.engine.may_finish.set()
        assert (await draining, world.generator.in_flight) == (0, 0)
        assert world.made == AT_ONCE
        await asyncio.sleep(1.0)
        assert world.made == AT_ONCE, "it took another prompt"
        assert "draining" in str(world.why())


class Listener(OrchestratorServiceServicer):
    """The orchestrator's registry behind its gRPC face, with another replica in it."""

    def __init__(self) -> None:
        self.registry = Registry(lease_s=30.0)
        self.registry.register(pb.RegisterReplicaRequest(replica_id="other", boot_id="o"), time.monotonic())
        other = pb.HeartbeatRequest(replica_id="other", boot_id="o", state=pb.REPLICA_STATE_SERVING)
        self.registry.heartbeat(other, time.monotonic())

    async def RegisterReplica(self, request: Any, context: Any) -> pb.RegisterReplicaResponse:
        self.registry.register(request, time.monotonic())
        return pb.RegisterReplicaResponse(lease_s=30.0)

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(registered=self.registry.heartbeat(request, time.monotonic()))

    def counted(self) -> tuple[list[str], float]:
        """Who lives, and what part of the prompts is the other replica's."""
        now = time.monotonic()
        return [one.replica_id for one in self.registry.alive(now)], self.registry.share("other", now)


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[Listener]:
    """The replica reports; but for changes only once a minute."""
    listener = Listener()
    add = functools.partial(add_OrchestratorServiceServicer_to_server, listener)
    server = await serve({"wire.v1.OrchestratorService": add}, "127.0.0.1", 0)
    who = Identity(run_id="test", replica_id="mine", boot_id="b", address="127.0.0.1:1", pid=1)
    heart = Heartbeat(
        f"127.0.0.1:{server.port}",
        who,
        world.engine,
        world.gate,
        world.generator,
        interval_s=60.0,
        take_word=AsyncMock(),
    )
    beating = asyncio.create_task(heart.run())
    try:
        yield listener
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await heart.farewell()
        await server.stop()


async def test_the_run_counts_without_a_drained_replica_at_once_and_gets_what_it_finishes(tmp_path: Path) -> None:
    async with replica(tmp_path) as (world, port), listening(world) as listener:
        await until_async(lambda: listener.counted() == (["mine", "other"], 0.5))
        assert await asyncio.to_thread(drain_replica, port, 0.0) == AT_ONCE
        await until_async(lambda: listener.counted() == (["other"], 1.0))
        assert world.made == 0, "it was told only when it had finished"
        assert listener.registry.members(time.monotonic())[0].replica_id == "other"
        world.engine.may_finish.set()
        await until_async(lambda: world.made == AT_ONCE and world.generator.in_flight == 0)


async def test_a_publication_that_has_begun_is_gone_through_first(tmp_path: Path) -> None:
    async with replica(tmp_path) as (world, port), listening(world) as listener:
        world.gate.move(ReplicaState.UPDATING)
        await asyncio.to_thread(drain_replica, port, 0.0)
        assert world.generator.state is ReplicaState.UPDATING
        await until_async(lambda: "mine" in listener.counted()[0])
        world.gate.commit(Serving(PolicyVersion(incarnation=1, version=1), "e" * 64))
        await until_async(lambda: listener.counted() == (["other"], 1.0))


async def command(folder: Path, *, port: int) -> subprocess.CompletedProcess[str]:
    """The hook of a container, with the settings file of its service."""
    make_tokens(RunPaths(folder).tokens)
    settings = RolloutSettings.model_validate({"run_dir": folder, "http_port": port})
    config = folder / "rollout.json"
    config.write_text(settings.model_dump_json(serialize_as_any=True))
    words = ["-P", "-m", "headrace.services.rollout.replica.drain", "--config", str(config), "--seconds", "60"]
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, *words], timeout=120, check=False, capture_output=True, text=True
    )


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Path]:
    """Folder with the tokens of a run, of which this process is a replica."""
    folder = RunPaths(tmp_path).tokens
    process.use(Role.ROLLOUT, folder, makes=True)
    yield folder
    process.forget()


async def ask(port: int, *more: tuple[str, str], **headers: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        given = [*headers.items(), *more]
        return (await client.post(f"http://127.0.0.1:{port}/drain", json={}, headers=given)).status_code


async def test_only_a_program_of_this_machine_with_a_token_may_ask(tmp_path: Path, tokens: Path) -> None:
    async with replica(tmp_path) as (world, port):
        assert await ask(port) == 401
        mine = (tokens / Role.ROLLOUT).read_text()
        for refused in (mine, f"Basic {mine}", "Bearer x", *(f"Bearer {(tokens / one).read_text()}" for one in OTHERS)):
            assert await ask(port, Authorization=refused) == 401, refused
        # A page in a browser of a user who has the token, should it ever get hold of it.
        bearer = {"Authorization": f"Bearer {mine}"}
        assert await ask(port, ("Authorization", "Bearer x"), **bearer) == 401
        assert await ask(port, **bearer, Origin="http://evil.example") == 403
        assert await ask(port, **bearer, Host="evil.example") == 403
        assert await ask(port, **bearer, **{"Content-Type": "text/plain"}) == 403
        assert not world.generator.retired
        assert await ask(port, **bearer) == 200
        assert world.generator.retired
