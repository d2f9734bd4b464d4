"""A worker's episodes as others see them, in reports and in traces; and the list of replicas that it follows."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.services.environment.player.replicas import ReplicaDirectory, follow_replicas
from headrace.services.environment.reporting import report_episodes
from headrace.services.orchestrator.service import SERVICE_NAME
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.wire.peers.rpc import serve
from headrace.wire.telemetry.logs import new_traceparent
from headrace.wire.v1 import message_pb2, orchestrator_pb2_grpc, rollout_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.integration.environment.stage import stage
from tests.integration.environment.test_groups import Works, calls, working
from tests.spans import parent, recording, traceparent
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


async def test_workers_report_what_each_episode_waits_for(tmp_path: Path) -> None:
    def says(text: str, request: rollout_pb2.SampleRequest) -> str:
        return '<tool_call>{"name": "hang", "arguments": {}}</tool_call>'

    hears = Hears()
    server = await serve({SERVICE_NAME: hears.add_to}, "127.0.0.1", 0)
    async with stage(tmp_path, says, tools=("games:hang",), slots=1, isolated=True) as it, AsyncExitStack() as stack:
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


async def test_a_trace_holds_the_episodes_of_a_group_with_their_turns_and_tool_calls(tmp_path: Path) -> None:
    with recording() as kept:
        trace = new_traceparent()
        says = calls("add", a=1, b=2)
        async with stage(tmp_path, says, tools=("games:add",)) as it, AsyncExitStack() as stack:
            works = Works(it, tmp_path)
            await working(stack, works)
            await works.issue(0, {"prompt": "add"}, trace=trace, size=2)
            await works.rollouts(1)
        below: dict[str, list[Any]] = defaultdict(list)
        for span in kept.spans:
            below[parent(span)].append(span)
        (play,) = below[trace]
        episodes = below[traceparent(play)]
        assert {one.name for one in episodes} == {"episode"}
        named = {str((one.attributes or {})["headrace.rollout_id"]) for one in episodes}
        assert named == {"test/g00000000/0", "test/g00000000/1"}
        for one in episodes:
            told = one.attributes or {}
            assert (told["headrace.end"], told["headrace.turns"]) == ("stop", 2) and told["headrace.tokens"] > 2
            first, tools, second = sorted(below[traceparent(one)], key=lambda span: span.start_time or 0)
            assert [span.name for span in (first, tools, second)] == ["turn", "tools", "turn"]
            assert (first.attributes or {})["headrace.replica"] == "rollout-0"
            assert (tools.attributes or {})["headrace.names"] == ("add",)


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


async def test_the_last_list_of_replicas_is_used_while_the_orchestrator_is_away() -> None:
    server = await serve({SERVICE_NAME: Lists("rollout-0").add_to}, "127.0.0.1", 0)
    async with following(server.port) as directory:
        await until_async(lambda: chosen(directory) == "rollout-0")
        await server.stop(0)
        await asyncio.sleep(1.0)  # A pause between two tries, and more.
        assert chosen(directory) == "rollout-0" and directory.serves(3) and not directory.serves(4)
        server = await serve({SERVICE_NAME: Lists("rollout-1").add_to}, "127.0.0.1", server.port)
        await until_async(lambda: chosen(directory) == "rollout-1")
    await server.stop(0)
