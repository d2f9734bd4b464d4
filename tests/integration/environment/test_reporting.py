"""A worker's episodes as the orchestrator hears of them: a real worker, a real gRPC service, a tool that hangs."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.services.environment.reporting import report_episodes
from headrace.services.orchestrator.service import SERVICE_NAME
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.wire.peers.rpc import serve
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc, rollout_pb2
from tests.integration.environment.stage import stage
from tests.integration.environment.test_groups import Works, working
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(400)


class Hears(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Takes reports as the orchestrator does."""

    def __init__(self) -> None:
        self.workers = EnvironmentWorkers(lease_s=60.0)

    def add_to(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def ReportEpisodes(self, request: pb.ReportEpisodesRequest, context: Any) -> pb.ReportEpisodesResponse:
        self.workers.report(request, time.monotonic())
        return pb.ReportEpisodesResponse(lease_s=0.3)

    def waits(self) -> dict[str, tuple[str, str]]:
        return {
            wait.id: (wait.kind, wait.waits_for) for one in self.workers.view(time.monotonic()) for wait in one.waits
        }


async def test_the_orchestrator_hears_which_episode_waits_for_which_tool_and_which_for_a_slot(tmp_path: Path) -> None:
    def says(text: str, request: rollout_pb2.SampleRequest) -> str:
        return '<tool_call>{"name": "hang", "arguments": {}}</tool_call>'

    hears = Hears()
    server = await serve({SERVICE_NAME: hears.add_to}, "127.0.0.1", 0)
    async with stage(tmp_path, says, tools=("games:hang",), slots=1) as it, AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, 0)
        works = Works(it, tmp_path)
        report = asyncio.create_task(
            report_episodes(
                f"127.0.0.1:{server.port}", works.groups.in_hand, lambda: ("a note",),
                run_id="test", worker_id="environment-0", slots=1,
            )
        )  # fmt: skip
        stack.callback(report.cancel)
        await working(stack, works)
        await works.issue(3, {"prompt": "hang"}, size=2)
        await until_async(lambda: {kind for kind, _ in hears.waits().values()} == {"tool", "slot"})
        waits = hears.waits()
        assert set(waits) == {"test/g00000003/0", "test/g00000003/1"}
        assert set(waits.values()) == {("tool", "the tools hang"), ("slot", "a free slot")}
        (view,) = hears.workers.view(time.monotonic())
        assert (view.playing, view.waiting, view.slots, view.notes) == (1, 1, 1, ("a note",))
        place = hears.workers.place_of(3, time.monotonic())
        assert place.startswith("environment-0 plays it: test/g00000003/"), place
    assert works.groups.in_hand.all == []
