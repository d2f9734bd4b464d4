"""The share that the orchestrator answers reaches the limit; and a replica can be stopped while its engine starts."""

import dataclasses
import functools
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest

from headrace.services.rollout.engines.protocol import EngineStats, Routes
from headrace.services.rollout.replica.capacity import RowPool, group_limit
from headrace.services.rollout.replica.gate import NO_VERSION, Gate, Serving
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.heartbeat import Heartbeat, Identity
from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.peers.rpc import serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc

NAME = pb.DESCRIPTOR.services_by_name["OrchestratorService"].full_name


class Orchestrator(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    def __init__(self) -> None:
        self.share = 0.0
        self.beats: list[Any] = []

    def add_to(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def RegisterReplica(self, request: Any, context: Any) -> pb.RegisterReplicaResponse:
        return pb.RegisterReplicaResponse(lease_s=5)

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        self.beats.append(request)
        return pb.HeartbeatResponse(registered=True, share=self.share)


class IdleEngine:
    """What a heartbeat asks of an engine."""

    name, dtype, checksum_format, first_verify_s = "torch", "float32", "", 0.0
    routes = Routes(backends=("gloo",), ranks=1)

    def stats(self) -> EngineStats:
        names = [field.name for field in dataclasses.fields(EngineStats)]
        return EngineStats(**dict.fromkeys(names, 0))


def generator(folder: Path, gate: Gate) -> GroupGenerator:
    """A batch of 8 groups, of which 1 of 4 replicas takes 2."""
    limit = functools.partial(
        group_limit, max_rows=64, group_size=4, batch_groups=8, max_staleness=0, deterministic=False
    )
    events = EventLog(folder, "rollout-0", "life")
    engine: Any = IdleEngine()
    return GroupGenerator(
        engine,
        gate,
        events,
        lambda _: "",
        replica_id="rollout-0",
        limit=limit,
        rows=RowPool(64, 4),
        share=1 / 4,
        hold_s=1,
    )


async def test_a_replica_takes_the_share_that_the_orchestrator_answers(tmp_path: Path) -> None:
    gate, orchestrator = Gate(), Orchestrator()
    groups = generator(tmp_path, gate)
    gate.move(ReplicaState.PENDING_WEIGHTS)
    assert groups.capacity(0) == 0
    gate.move(ReplicaState.UPDATING)
    gate.commit(Serving(NO_VERSION, "digest"))
    assert groups.capacity(0) == 2
    server = await serve({NAME: orchestrator.add_to}, "127.0.0.1", 0)
    identity = Identity(run_id="r", replica_id="rollout-0", boot_id="b", address="a", pid=1)
    engine: Any = IdleEngine()
    word = AsyncMock()
    heartbeat = Heartbeat(f"127.0.0.1:{server.port}", identity, engine, gate, groups, interval_s=1.0, take_word=word)
    try:
        for share, taken in ((0.0, 2), (0.5, 4), (1.0, 8), (0.75, 6)):
            orchestrator.share = share
            await heartbeat.beat()
            assert groups.capacity(0) == taken, share
            assert groups.capacity(taken + 3) == 0
        groups.speed.observe(40, 2.0)
        await heartbeat.farewell()
    finally:
        await server.stop()
    assert orchestrator.beats[-1].state == pb.REPLICA_STATE_GONE
    assert orchestrator.beats[-1].speed == pytest.approx(20.0)
