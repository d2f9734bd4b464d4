"""Which replica answers a chat, and what the asker hears when none does.

HTTP and gRPC are real; the replicas follow a script.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.services.orchestrator.http.chat import ChatRoutes, add_chat
from headrace.services.orchestrator.http.pages import page_policy
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.operator_requests import OperatorRequests
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.store import Store
from headrace.wire.http import admin_app, serve_http
from headrace.wire.peers.rpc import RpcServer, serve
from headrace.wire.v1 import orchestrator_pb2, rollout_pb2_grpc
from headrace.wire.v1 import rollout_pb2 as pb
from tests.http_tokens import any_role

ASKED = {"messages": [{"role": "user", "content": "1+1="}]}
SERVING, UPDATING = orchestrator_pb2.REPLICA_STATE_SERVING, orchestrator_pb2.REPLICA_STATE_UPDATING
NAME = pb.DESCRIPTOR.services_by_name["RolloutService"].full_name


@dataclass
class Replica(rollout_pb2_grpc.RolloutServiceServicer):
    """Says what it is told to say, then how it ends."""

    name: str
    texts: list[str] = field(default_factory=lambda: ["2"])
    refusal: int = 0
    hangs: bool = False
    asked: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def Chat(self, request: pb.ChatRequest, context: Any) -> None:  # type: ignore[override]
        self.asked += 1
        try:
            for text in self.texts:
                await context.write(pb.ChatPiece(text=text, replica_id=self.name))
            if self.hangs:
                await asyncio.sleep(60)
            if self.refusal:
                refusal = pb.ChatRefusal(
                    kind=pb.ChatRefusal.Kind.ValueType(self.refusal), reason=f"{self.name} says no"
                )
                await context.write(pb.ChatPiece(refusal=refusal))
            else:
                await context.write(pb.ChatPiece(finish_reason="stop", replica_id=self.name))
        finally:
            self.left.set()


class Orchestrator:
    """Only what chats need of one."""

    def __init__(self, folder: Path) -> None:
        settings = OrchestratorSettings.model_validate(
            {"run": {"id": "run"}, "orchestrator": {"chat": {"wait_s": 0.5, "deadline_s": 5.0, "at_once": 2}}}
        )
        self.registry, self.clients = Registry(60.0), Clients()
        self.operator_requests = OperatorRequests(Store(folder / "state.sqlite"))
        self.chat = ChatRoutes(settings, self.registry, self.clients, self.operator_requests)
        self.app = admin_app("orchestrator", lambda: None, policy=page_policy("127.0.0.1", any_role))
        add_chat(self.app, self.chat)
        self._servers: list[RpcServer] = []

    async def open(self) -> httpx.AsyncClient:
        self._http = await serve_http(self.app, "127.0.0.1", 0)
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._http.port}", trust_env=False, timeout=20)

    async def join(self, replica: Replica, *, state: int = SERVING, groups: int = 0) -> None:
        def add_to(server: Any) -> None:
            rollout_pb2_grpc.add_RolloutServiceServicer_to_server(replica, server)

        rpc = await serve({NAME: add_to}, "127.0.0.1", 0)
        self._servers.append(rpc)
        who: dict[str, Any] = {"replica_id": replica.name, "boot_id": "1"}
        request = orchestrator_pb2.RegisterReplicaRequest(run_id="run", address=f"127.0.0.1:{rpc.port}", **who)
        self.registry.register(request, time.monotonic())
        self.beat(replica, state=state, groups=groups)

    def beat(self, replica: Replica, *, state: int, groups: int = 0) -> None:
        values: dict[str, Any] = {"replica_id": replica.name, "boot_id": "1", "state": state}
        self.registry.heartbeat(orchestrator_pb2.HeartbeatRequest(in_flight_groups=groups, **values), time.monotonic())

    async def close(self) -> None:
        await self.clients.close()
        for server in self._servers:
            await server.stop(0.1)
        await self._http.stop()


@pytest.fixture
async def orchestrator(tmp_path: Path) -> AsyncIterator[Orchestrator]:
    made = Orchestrator(tmp_path)
    yield made
    await made.close()


async def ask(http: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await http.post("/v1/chat/completions", json={**ASKED, **more})


async def test_the_least_loaded_replica_answers_and_a_drained_one_does_not(orchestrator: Orchestrator) -> None:
    busy, idle = Replica("rollout-0"), Replica("rollout-1")
    await orchestrator.join(busy, groups=5)
    await orchestrator.join(idle, groups=1)
    async with await orchestrator.open() as http:
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-1"
        orchestrator.beat(idle, state=UPDATING, groups=1)
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-0"
        orchestrator.operator_requests.drain("rollout-0", True)
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-1"


async def test_a_chat_moves_to_another_replica_when_one_is_full_or_gone(orchestrator: Orchestrator) -> None:
    full = Replica("rollout-0", texts=[], refusal=pb.ChatRefusal.KIND_BUSY)
    free = Replica("rollout-1")
    await orchestrator.join(full)
    await orchestrator.join(free, groups=9)
    async with await orchestrator.open() as http:
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-1"
        assert full.asked == 1


@pytest.mark.parametrize(
    ("kind", "status", "retry"),
    [
        (pb.ChatRefusal.KIND_BUSY, 429, "2"),
        (pb.ChatRefusal.KIND_UNAVAILABLE, 503, "2"),
        (pb.ChatRefusal.KIND_LATE, 504, None),
        (pb.ChatRefusal.KIND_BAD_REQUEST, 400, None),
    ],
)
async def test_each_refusal_has_its_http_status(
    orchestrator: Orchestrator, kind: int, status: int, retry: str | None
) -> None:
    await orchestrator.join(Replica("rollout-0", texts=[], refusal=kind))
    async with await orchestrator.open() as http:
        for stream in (False, True):
            refused = await ask(http, stream=stream)
            assert (refused.status_code, refused.headers.get("retry-after")) == (status, retry)
            assert refused.json()["error"]["message"] == "rollout-0 says no"


async def test_a_replica_that_starts_serving_within_the_wait_answers(orchestrator: Orchestrator) -> None:
    late = Replica("rollout-0")
    await orchestrator.join(late, state=orchestrator_pb2.REPLICA_STATE_PENDING_WEIGHTS)
    async with await orchestrator.open() as http:
        refused = await ask(http)
        assert refused.status_code == 503 and "no replica serves" in refused.json()["error"]["message"]
        asyncio.get_running_loop().call_later(0.2, lambda: orchestrator.beat(late, state=SERVING))
        assert (await ask(http)).status_code == 200


async def test_a_disconnected_client_frees_its_replica_and_place(orchestrator: Orchestrator) -> None:
    replica = Replica("rollout-0", hangs=True)
    await orchestrator.join(replica)
    async with await orchestrator.open() as http:
        for _ in range(4):
            replica.left.clear()
            async with http.stream("POST", "/v1/chat/completions", json={**ASKED, "stream": True}) as answer:
                async for _line in answer.aiter_lines():
                    break
            await asyncio.wait_for(replica.left.wait(), 10)
        assert replica.asked == 4, "two are the most at once"


async def test_a_replica_that_dies_is_left_for_another(orchestrator: Orchestrator) -> None:
    await orchestrator.join(Replica("rollout-0"))
    await orchestrator._servers[0].stop(0)
    async with await orchestrator.open() as http:
        refused = await ask(http)
        assert refused.status_code == 503 and "rollout-0 does not answer" in refused.json()["error"]["message"]
        await orchestrator.join(Replica("rollout-1"), groups=3)
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-1"


async def test_sleeping_engines_refuse_at_once_and_say_when_to_come_again(orchestrator: Orchestrator) -> None:
    sleeper = Replica("rollout-0")
    await orchestrator.join(sleeper, state=orchestrator_pb2.REPLICA_STATE_SLEEPING)
    async with await orchestrator.open() as http:
        refused = await ask(http)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert refused.json()["error"]["message"] == "the engines sleep while the trainer steps"
        await orchestrator.join(Replica("rollout-1"))
        assert (await ask(http)).json()["headrace"]["replica"] == "rollout-1"
    assert sleeper.asked == 0
