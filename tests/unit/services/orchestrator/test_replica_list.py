"""Where turns of episodes can be sampled, as the orchestrator tells those who play them."""

import time
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from headrace.services.orchestrator.service import SERVICE_NAME, OrchestratorServicer
from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.peers.rpc import channel, serve
from headrace.wire.v1 import message_pb2, orchestrator_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as pb


def beat(
    registry: Registry, name: str, *, state: int = pb.REPLICA_STATE_SERVING, version: int = 1, free: int = 4
) -> None:
    now = time.monotonic()
    registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id="b", address=f"{name}:1"), now)
    request: Any = pb.HeartbeatRequest(
        replica_id=name,
        boot_id="b",
        state=state,  # type: ignore[arg-type]
        version=message_pb2.PolicyVersion(incarnation=1, version=version),
        free_rows=free,
    )
    assert registry.heartbeat(request, now)


def test_only_replicas_that_serve_and_are_not_drained_take_turns() -> None:
    registry = Registry(lease_s=10)
    beat(registry, "a", free=3)
    beat(registry, "b", state=pb.REPLICA_STATE_UPDATING)
    beat(registry, "c", state=pb.REPLICA_STATE_DRAINING)
    beat(registry, "d")
    places = registry.places(time.monotonic(), without={"d"})
    assert [(one.replica_id, one.address, one.free_rows, one.takes) for one in places.replicas] == [
        ("a", "a:1", 3, True),
        ("b", "b:1", 4, False),
        ("d", "d:1", 4, False),
    ]
    assert places.lease_s == 10 and places.replicas[0].version.version == 1
    assert not registry.places(time.monotonic() + 11).replicas


async def test_the_list_comes_over_grpc_and_another_runs_worker_is_refused() -> None:
    registry = Registry(lease_s=30)
    beat(registry, "a")
    run: Any = SimpleNamespace(
        registry=registry, state=SimpleNamespace(operator_requests=SimpleNamespace(drained=set()))
    )
    servicer = OrchestratorServicer(run, run_id="r")  # type: ignore[arg-type]
    server = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    async with channel(f"127.0.0.1:{server.port}") as opened:
        stub = orchestrator_pb2_grpc.OrchestratorServiceStub(opened)
        watch = stub.WatchReplicas(pb.WatchReplicasRequest(run_id="r"))
        assert [one.replica_id for one in (await watch.read()).replicas] == ["a"]
        beat(registry, "b")
        assert [one.replica_id for one in (await watch.read()).replicas] == ["a", "b"]
        run.state.operator_requests.drained.add("a")
        assert [one.takes for one in (await watch.read()).replicas] == [False, True]
        watch.cancel()
        with pytest.raises(grpc.aio.AioRpcError, match="this is run 'r'"):
            await stub.WatchReplicas(pb.WatchReplicasRequest(run_id="other")).read()
    await server.stop()
