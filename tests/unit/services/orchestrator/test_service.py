"""The orchestrator's gRPC face over a real server."""

import pytest

from headrace.services.orchestrator.service import SERVICE_NAME, OrchestratorServicer
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc
from tests.status import run_status, status_from_proto


async def test_the_status_is_the_same_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = {"id": "r/g7/1", "kind": "tool", "waits_for": "the tools search", "since": 990.5}
    worker = {
        "id": "environment-0",
        "slots": 8,
        "playing": 1,
        "waiting": 0,
        "seen": 999.5,
        "waits": [wait],
        "notes": [],
    }
    status = run_status(
        step=7,
        replicas=[{"id": "r", "version": "1.7"}],
        streams={"dead": {"length": 2}},
        environments=[worker, {**worker, "id": "environment-1", "waits": [], "notes": ["7% abstained"]}],
    )
    servicer = OrchestratorServicer.__new__(OrchestratorServicer)
    monkeypatch.setattr(servicer, "_status", lambda: status, raising=False)
    server = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    async with channel(f"127.0.0.1:{server.port}") as opened:
        ask = orchestrator_pb2_grpc.OrchestratorServiceStub(opened).GetStatus
        answer = await call(ask, pb.GetStatusRequest(), timeout_s=60, what="the status")
    await server.stop()
    assert status_from_proto(answer) == status
