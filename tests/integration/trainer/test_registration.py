"""Registers a run of millions of groups over real gRPC: no message is too large, a restart between pages is cured."""

import asyncio

import grpc
import pytest

from headrace.services.orchestrator.state.fate_pages import FatePages
from headrace.services.trainer import registration
from headrace.services.trainer.registration import register
from headrace.wire.peers.rpc import channel, serve
from headrace.wire.v1 import common_pb2, orchestrator_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as pb


class Orchestrator(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Takes pages as the service does; forgets them once, before page `dies_at`."""

    def __init__(self, dies_at: int = -1) -> None:
        self.pages, self.dies_at = FatePages(), dies_at
        self.calls = self.fates = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def RegisterTrainer(self, request: pb.RegisterTrainerRequest, context: object) -> pb.RegisterTrainerResponse:
        self.calls += 1
        if request.page == self.dies_at:
            self.pages, self.dies_at = FatePages(), -1
        whole = self.pages.take(request)
        self.fates = len(whole.fates) if whole else 0
        return pb.RegisterTrainerResponse(incarnation=3 if whole else 0)


def registered(orchestrator: Orchestrator, request: pb.RegisterTrainerRequest) -> int:
    async def act() -> int:
        name = pb.DESCRIPTOR.services_by_name["OrchestratorService"].full_name
        server = await serve({name: orchestrator.add_to}, "127.0.0.1", 0)
        there = channel(f"127.0.0.1:{server.port}")
        try:
            return await register(orchestrator_pb2_grpc.OrchestratorServiceStub(there), request, timeout_s=120.0)
        finally:
            await there.close()
            await server.stop()

    return asyncio.run(act())


def request(groups: int) -> pb.RegisterTrainerRequest:
    names = (f"a-run-with-a-usual-name/{index:09d}" for index in range(groups))
    fates = [common_pb2.Fate(group_index=index, group_id=name, step=index // 64) for index, name in enumerate(names)]
    return pb.RegisterTrainerRequest(run_id="r", boot_id="b", fates=fates)


def test_an_orchestrator_restarted_between_two_pages_gets_all_of_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PAGE", 10)
    orchestrator = Orchestrator(dies_at=2)
    assert registered(orchestrator, request(40)) == 3
    assert orchestrator.fates == 40 and orchestrator.calls == 3 + 4
