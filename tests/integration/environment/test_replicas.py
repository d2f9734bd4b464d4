"""The list of replicas as a worker follows it: over gRPC, while the orchestrator answers, is away, or hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from headrace.services.environment.player.replicas import ReplicaDirectory, follow_replicas
from headrace.services.orchestrator.service import SERVICE_NAME
from headrace.wire.peers.rpc import serve
from headrace.wire.v1 import message_pb2, orchestrator_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(400)


class Lists(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Lists one replica, and nothing more on the same stream."""

    def __init__(self, name: str, *, lease_s: float = 60.0) -> None:
        self.name, self.lease_s, self.asked = name, lease_s, 0

    def add_to(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def WatchReplicas(self, request: pb.WatchReplicasRequest, context: Any) -> AsyncIterator[pb.ReplicaList]:
        self.asked += 1
        version = message_pb2.PolicyVersion(incarnation=1, version=3)
        place = pb.ReplicaPlace(replica_id=self.name, address="here:1", version=version, free_rows=2, takes=True)
        yield pb.ReplicaList(replicas=[place], lease_s=self.lease_s)
        await asyncio.sleep(1000)


@asynccontextmanager
async def following(port: int) -> AsyncIterator[ReplicaDirectory]:
    directory = ReplicaDirectory()
    task = asyncio.create_task(follow_replicas(f"127.0.0.1:{port}", "test", directory))
    try:
        yield directory
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def chosen(directory: ReplicaDirectory) -> str:
    place = directory.choose(3)
    return "" if place is None else place.replica_id


async def test_the_last_list_stands_while_the_orchestrator_is_away_and_the_next_one_replaces_it() -> None:
    server = await serve({SERVICE_NAME: Lists("rollout-0").add_to}, "127.0.0.1", 0)
    async with following(server.port) as directory:
        await until_async(lambda: chosen(directory) == "rollout-0")
        await server.stop(0)
        await asyncio.sleep(1.0)  # A pause between two tries, and more.
        assert chosen(directory) == "rollout-0" and directory.serves(3) and not directory.serves(4)
        server = await serve({SERVICE_NAME: Lists("rollout-1").add_to}, "127.0.0.1", server.port)
        await until_async(lambda: chosen(directory) == "rollout-1")
    await server.stop(0)
