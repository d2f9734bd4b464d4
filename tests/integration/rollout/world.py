"""A running replica of the torch engine and everything around it: for tests of the replica as a whole."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from prometheus_client import REGISTRY

from headrace.services.orchestrator.state.registry import Registry
from headrace.services.rollout.app import make_engine, run_replica
from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.rollout.replica.gpu_turns import first_turn, make_lock
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.rollout.text import TextDecoder
from headrace.wire.contracts import (
    Header,
    Message,
    PromptGroup,
    Purpose,
    RolloutGroup,
    Sampling,
    decode,
    encode,
    group_id,
)
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.streams import StreamName
from headrace.wire.v1 import common_pb2, message_pb2, orchestrator_pb2_grpc, rollout_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.rollout_pb2_grpc import RolloutServiceStub
from headrace.wire.weights import CollectiveGroup, Snapshot, make_snapshot, open_store
from tests.memory_broker import MemoryBroker
from tests.rollout_models import make_model, random_prompts, reference_logprobs, save_folder
from tests.waiting import until_async

CANARY = random_prompts(24, seed=5)[0]


class Listener(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """The orchestrator's registry behind its gRPC face; remembers what it was told."""

    def __init__(self) -> None:
        self.registry = Registry(lease_s=60.0)
        self.addresses: asyncio.Queue[str] = asyncio.Queue()
        self.states: list[int] = []
        self.ended: set[int] = set()
        """Training groups that have a fate."""
        self.told: set[int] = set()
        """Groups that the replica says it generates, or ever did."""
        self.word = pb.HeartbeatResponse()
        """What an answer to a heartbeat says beside."""

    def add_to(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def RegisterReplica(self, request: Any, context: Any) -> pb.RegisterReplicaResponse:
        self.registry.register(request, time.monotonic())
        self.addresses.put_nowait(request.address)
        return pb.RegisterReplicaResponse(lease_s=60.0)

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        self.states.append(request.state)
        self.told |= set(request.groups)
        answer = pb.HeartbeatResponse()
        answer.CopyFrom(self.word)
        answer.registered = self.registry.heartbeat(request, time.monotonic())
        answer.ended.extend(self.ended.intersection(request.groups))
        return answer


class World:
    """A running replica and everything around it."""

    engine: TorchEngine
    front: ReplicaHttpServer
    running: asyncio.Task[None]

    def __init__(self, settings: RolloutSettings, broker: MemoryBroker, listener: Listener, stub: Any) -> None:
        self.settings = settings
        self.broker = broker
        self.listener = listener
        self.stub = stub
        self.model = make_model()

    async def ask(self, method: str, request: Any, timeout_s: float = 20.0) -> Any:
        return await call(getattr(self.stub, method), request, timeout_s=timeout_s, what=method)

    async def state(self) -> tuple[str, int]:
        found = await self.ask("GetReplica", rollout_pb2.GetReplicaRequest())
        return pb.ReplicaState.Name(found.state).removeprefix("REPLICA_STATE_"), found.version.version

    async def prepare(self, publication: str, version: int, snapshot: Snapshot, **other: Any) -> Any:
        numbers = {"incarnation": 1, "deadline_s": 30.0} | other
        return await self.ask(
            "PrepareWeights",
            rollout_pb2.PrepareWeightsRequest(
                publication_id=publication,
                version=message_pb2.PolicyVersion(incarnation=numbers["incarnation"], version=version),
                plan=snapshot.plan,
                deadline_s=numbers["deadline_s"],
            ),
        )

    async def receive(self, publication: str, snapshot: Snapshot, name: str = "") -> list[str]:
        """Over gloo, from a sender thread that plays the trainer."""
        store, port = open_store("127.0.0.1")
        # The sender leaves its group after each transfer: the next one has another name.
        name = name or f"{publication}-{port}"
        sending = asyncio.create_task(asyncio.to_thread(send, snapshot, name, port))
        group = rollout_pb2.CollectiveGroup(
            name=name, backend="gloo", store_host="127.0.0.1", store_port=port, rank=1, world_size=2
        )
        request = rollout_pb2.ReceiveWeightsRequest(publication_id=publication, collective=group, deadline_s=10)
        answer = await self.ask("ReceiveWeights", request)
        await sending
        del store
        return list(answer.digests)

    async def verify(self, publication: str, *, spoil: float = 0.0) -> Any:
        logprobs, _ = reference_logprobs(self.model, CANARY[:1], np.array(CANARY[1:], np.int32))
        canary = common_pb2.Canary(
            token_ids=np.array(CANARY, "<i4").tobytes(),
            logprobs=(logprobs + spoil).astype("<f4").tobytes(),
            tolerance=1e-4,
        )
        request = rollout_pb2.VerifyWeightsRequest(publication_id=publication, canary=canary, deadline_s=10)
        return await self.ask("VerifyWeights", request)

    async def commit(self, publication: str) -> None:
        await self.ask("CommitWeights", rollout_pb2.CommitWeightsRequest(publication_id=publication))

    async def abort(self, publication: str) -> None:
        await self.ask("AbortWeights", rollout_pb2.AbortWeightsRequest(publication_id=publication))

    async def publish(self, version: int, **other: Any) -> Snapshot:
        snapshot = take(self.model)
        publication = f"p{version}"
        assert (await self.prepare(publication, version, snapshot, **other)).accepted
        assert await self.receive(publication, snapshot) == [bucket.digest for bucket in snapshot.plan.buckets]
        assert (await self.verify(publication)).equal
        await self.commit(publication)
        return snapshot

    async def issue(self, index: int, **options: Any) -> None:
        await self.broker.add(StreamName.PROMPTS, encode(prompt_message(index, **options)))

    async def rollouts(self, count: int, timeout_s: float = 60.0) -> list[tuple[Header, RolloutGroup]]:
        await until_async(lambda: self.broker.streams[StreamName.ROLLOUTS].added >= count, seconds=timeout_s)
        found = []
        for data in self.broker.streams[StreamName.ROLLOUTS].entries.values():
            message = decode(data)
            assert isinstance(message.body, RolloutGroup)
            found.append((message.header, message.body))
        return found

    async def begin(self, index: int, tokens: int, **options: Any) -> None:
        """Issues a group that has decoded so many tokens and goes on when it is let: `publish` does, or `go_on`."""
        thread = self.engine._thread
        core = thread.core
        assert core is not None
        wanted, step = core.stats().generated_tokens + tokens, core.step

        def step_so_far() -> None:
            step()
            if core.stats().generated_tokens >= wanted:
                thread.paused = True
                core.step = step  # type: ignore[method-assign]

        core.step = step_so_far  # type: ignore[method-assign]
        await self.issue(index, **options)
        await until_async(lambda: thread.paused)

    async def go_on(self) -> None:
        """What `begin` has begun."""
        await self.engine.resume(20.0)

    @property
    def pending(self) -> int:
        return len(self.broker.streams[StreamName.PROMPTS].pending)


def outcomes(outcome: str) -> float:
    """How many entries of this process's replicas ended so."""
    return REGISTRY.get_sample_value("headrace_rollout_groups_total", {"outcome": outcome}) or 0.0


def prompt_message(
    index: int, *, size: int = 3, max_tokens: int = 12, min_version: int = 0, prompt_tokens: int = 7
) -> Message:
    run_id = "test"
    (tokens,) = random_prompts(prompt_tokens, seed=index)
    body = PromptGroup(
        sample_id=f"s{index}",
        token_ids=np.array(tokens, np.int32),
        group_size=size,
        # What is meant to be long ends by its limit.
        sampling=Sampling(max_tokens=max_tokens, stop_token_ids=(95,) if max_tokens < 100 else (), seed=9),
        min_version=min_version,
    )
    header = Header(run_id=run_id, purpose=Purpose.TRAIN, group_index=index, group_id=group_id(run_id, index))
    return Message(header=header, body=body)


def take(model: Any) -> Snapshot:
    return make_snapshot(model.named_parameters(), dtype=torch.float32, bucket_bytes=40_000)


def send(snapshot: Snapshot, name: str, port: int) -> None:
    group = CollectiveGroup.join(name, "gloo", "127.0.0.1", port, 0, 2, 10)
    for bucket in snapshot.buckets:
        group.broadcast(bucket, 10)
    group.abort()


@asynccontextmanager
async def replica(folder: Path, *, stale: str = "wait", **rollout: Any) -> AsyncIterator[World]:
    listener = Listener()
    orchestrator = await serve({"wire.v1.OrchestratorService": listener.add_to}, "127.0.0.1", 0)
    settings = RolloutSettings.model_validate(
        {
            "run": {"id": "test", "max_staleness": 1, "stale": stale},
            "model": {"path": save_folder(make_model(max_position_embeddings=4096), folder / "model")},
            "batch": {"groups": 8, "group_size": 3},
            "run_dir": folder,
            "orchestrator_address": f"127.0.0.1:{orchestrator.port}",
            "rollout": {"max_rows": 6, "hold_s": 0.3, "heartbeat_s": 0.2} | rollout,
        }
    )
    broker, shutdown = MemoryBroker(), Shutdown()
    lock = make_lock(settings)
    await first_turn(lock, lambda what: None)
    engine = make_engine(settings)
    decoder = TextDecoder(settings.model.path)
    front = ReplicaHttpServer()
    running = asyncio.create_task(run_replica(settings, engine, decoder, broker, shutdown, front, lock))
    address = await asyncio.wait_for(listener.addresses.get(), 10)
    async with channel(address) as link:
        try:
            world = World(settings, broker, listener, RolloutServiceStub(link))
            world.engine, world.front, world.running = engine, front, running
            yield world
        finally:
            shutdown.event.set()
            await asyncio.wait_for(running, 60)
            await orchestrator.stop(0)
