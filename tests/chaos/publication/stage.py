"""A run without a trainer's steps: orchestrator and trainer's publisher in this process, replicas in their own."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator as Coordinator
from headrace.services.orchestrator.publication.joiners import Joiners
from headrace.services.orchestrator.run import Orchestrator
from headrace.services.orchestrator.service import SERVICE_NAME, OrchestratorServicer
from headrace.services.orchestrator.settings import OrchestratorSettings, PublicationTable
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.trainer import service as trainer_service
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.registration import register
from headrace.wire.contracts import (
    Header,
    Message,
    PolicyVersion,
    PromptGroup,
    Purpose,
    RolloutGroup,
    Sampling,
    decode,
    encode,
    group_id,
)
from headrace.wire.errors import TransientError
from headrace.wire.peers.rpc import channel, serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.chaos.publication.replicas import RUN_ID, Replicas
from tests.chaos.publication.weights import Versions, backend_of, folder_of, publisher_of
from tests.ports import free_port
from tests.rollout_models import random_prompts

TIMES = PublicationTable(prepare_s=2, transfer_s=3, verify_s=3, commit_s=2)
_UNDER_WAY = 4
_FIRST_INDEX = 10_000
"""Beyond what an orchestrator issues by itself."""
_LOOK_S = 0.1


class WatchedRun(Orchestrator):
    """Remembers what became of each publication of the trainer."""

    outcomes: dict[PolicyVersion, dict[str, pb.ReplicaOutcome]]

    async def publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        response = await super().publish(request)
        version = PolicyVersion(incarnation=request.incarnation, version=request.version)
        self.outcomes[version] = {outcome.replica_id: outcome for outcome in response.outcomes}
        return response


@asynccontextmanager
async def orchestrator(
    folder: Path, broker: RedisBroker, port: int, times: PublicationTable
) -> AsyncIterator[WatchedRun]:
    """All of `headrace.services.orchestrator.app` but the issuer's loop: who tests issues the prompts."""
    settings = OrchestratorSettings.model_validate({"run": {"id": RUN_ID, "max_steps": 1000}, "run_dir": folder})
    store = Store(folder / "state.sqlite")
    state = RunState(store, max_steps=1000)
    registry, clients = Registry(8.0), Clients()
    events = EventLog(folder, "orchestrator", secrets.token_hex(4))
    prompts = PromptStream(broker, store)
    issuer = Issuer(settings, [None], store, state, broker, prompts, clients, events)  # type: ignore[list-item]
    coordinator = Coordinator(state, registry, clients, events, times)
    run = WatchedRun(settings, store, state, registry, issuer, coordinator, None, events, broker, clients)
    run.outcomes = {}
    servicer = OrchestratorServicer(run, run_id=RUN_ID)
    rpc = await serve({SERVICE_NAME: servicer.add_to}, "127.0.0.1", port)
    joiners = asyncio.create_task(Joiners(state, registry, coordinator, lambda: not run.turns.trainer_has).run())
    try:
        yield run
    finally:
        assert not joiners.done(), joiners.exception()
        joiners.cancel()
        await asyncio.gather(joiners, return_exceptions=True)
        await rpc.stop(0)
        await clients.close()
        events.close()
        store.close()


class Trainer:
    """The trainer's publisher and its gRPC face, with weights that are a function of the version."""

    def __init__(self, publisher: Publisher, orchestrator: str, address: str) -> None:
        self.versions = Versions()
        self._backend = backend_of(self.versions)
        self._publisher = publisher
        self._channel = channel(orchestrator)
        self._stub: Any = OrchestratorServiceStub(self._channel)
        self._address = address
        self.incarnation = 0

    async def register(self, version: int = 0) -> None:
        """A new life."""
        request = pb.RegisterTrainerRequest(
            run_id=RUN_ID,
            address=self._address,
            version=version,
            boot_id=secrets.token_hex(8),
            routes=self._publisher.routes,
        )
        self.incarnation = await register(self._stub, request, timeout_s=30)

    async def publish(self, version: int, timeout_s: float = 60.0) -> PolicyVersion:
        """Holds and publishes; returns the version with its incarnation. Raises what the publisher raises."""
        full = PolicyVersion(incarnation=self.incarnation, version=version)
        await asyncio.to_thread(self._hold, full)
        await self._publisher.publish(self._stub, self.incarnation, timeout_s=timeout_s)
        return full

    def _hold(self, version: PolicyVersion) -> None:
        self.versions.set(version)
        self._publisher.hold(self._backend, version.version)

    async def close(self) -> None:
        await self._channel.close()


@asynccontextmanager
async def trainer(folder: Path, orchestrator: str) -> AsyncIterator[Trainer]:
    """Registered by the test."""
    publisher = publisher_of(folder)
    servicer = trainer_service.TrainerServicer(publisher)
    rpc = await serve({trainer_service.SERVICE_NAME: servicer.add_to}, "127.0.0.1", 0)
    side = Trainer(publisher, orchestrator, f"127.0.0.1:{rpc.port}")
    try:
        yield side
    finally:
        await side.close()
        await rpc.stop(0)


class Traffic:
    """Prompts on their way in, and a close look at every rollout that comes out."""

    def __init__(self, broker: RedisBroker, replicas: Replicas) -> None:
        self._broker = broker
        self._replicas = replicas
        self._issued = 0
        self._taken = 0
        self._groups: list[RolloutGroup] = []
        self._versions = Versions()
        self.flows = False
        """Off while processes start: they need the cores."""
        self.over = False
        self.looked_at = 0

    async def run(self) -> None:
        """Always a few prompts under way, short ones and such that outlast a publication."""
        consumer = self._broker.consumer(StreamName.ROLLOUTS, "test", lease_s=30.0)
        while not self.over:
            while self.flows and self._issued - self._taken < _UNDER_WAY:
                await self._issue(self._issued)
                self._issued += 1
            try:
                entries = await consumer.read(count=50, block_s=_LOOK_S)
            except TransientError:
                continue  # A read that timed out on a busy machine: what it has taken comes again with its lease.
            for entry in entries:
                message = decode(entry.data)
                assert isinstance(message.body, RolloutGroup)
                self._taken += message.header.group_index >= _FIRST_INDEX
                self._groups.append(message.body)
                await consumer.ack([entry])

    async def _issue(self, index: int) -> None:
        (tokens,) = random_prompts(7, seed=index)
        body = PromptGroup(
            sample_id=f"s{index}",
            token_ids=np.array(tokens, np.int32),
            group_size=2,
            sampling=Sampling(max_tokens=(8, 40, 200)[index % 3], seed=9),
        )
        number = _FIRST_INDEX + index
        header = Header(run_id=RUN_ID, purpose=Purpose.TRAIN, group_index=number, group_id=group_id(RUN_ID, number))
        await self._broker.add(StreamName.PROMPTS, encode(Message(header=header, body=body)))

    async def some(self, limit_s: float) -> None:
        """Waits until something has come since the last look: after a cold start the first rollouts take a while."""
        end = time.monotonic() + limit_s
        while not self._groups:
            assert time.monotonic() < end, "no rollout has come"
            await asyncio.sleep(0.05)

    def check(self) -> list[RolloutGroup]:
        """What came since the last look: each token was sampled from weights that its replica had committed."""
        groups, self._groups = self._groups, []
        committed = self._replicas.committed()
        for group in groups:
            of_replica = committed.get(group.replica_id, {})
            for rollout in group.rollouts:
                for span in rollout.spans:
                    assert (span.version, span.weights_digest) in of_replica, f"{group.replica_id}: {span}"
                versions = [span.version for span in rollout.spans]
                assert versions == sorted(versions)
        self._versions.check(groups)
        self.looked_at += len(groups)
        return groups


class Stage:
    """Everything, running."""

    def __init__(self, address: str, run: WatchedRun, side: Trainer, replicas: Replicas, traffic: Traffic) -> None:
        self.address = address
        """gRPC address of the orchestrator."""
        self.run = run
        self.trainer = side
        self.replicas = replicas
        self.traffic = traffic
        self.current = PolicyVersion(incarnation=0, version=0)
        """What all replicas are to serve."""

    async def publish(self) -> PolicyVersion:
        """The next version, once the trainer waits no longer."""
        self.current = PolicyVersion(incarnation=self.trainer.incarnation, version=self.current.version + 1)
        return await self.trainer.publish(self.current.version)

    def outcome(self, version: PolicyVersion, replica: str) -> pb.ReplicaOutcome:
        return self.run.outcomes[version][replica]

    async def cast(self, members: int, within_s: float = 60) -> list[str]:
        """So many replicas live and serve the current version, with prompts at work; returns their ids."""
        self.traffic.flows = False
        wanted = [f"rollout-{number}" for number in range(members)]
        for replica in self.replicas.ids:
            if replica not in wanted:
                await self.replicas.leave(replica)
        for replica in wanted:
            if replica not in self.replicas.ids or not self.replicas.lives(replica):
                self.replicas.start(replica)
        if not self.current.version:
            await self.publish()
        await self.replicas.serving(self.current, wanted, within_s)
        self.traffic.flows = True
        return wanted


@asynccontextmanager
async def open_stage(
    folder: Path, broker_url: str, *, times: PublicationTable = TIMES, **rollout: Any
) -> AsyncIterator[Stage]:
    """No replica is there yet."""
    folder_of(folder / "model")
    broker = RedisBroker(broker_url, RUN_ID)
    port = free_port()
    address = f"127.0.0.1:{port}"
    replicas = Replicas(folder, broker_url=broker_url, orchestrator=address, **rollout)
    try:
        async with orchestrator(folder, broker, port, times) as run, trainer(folder, address) as side:
            await side.register()
            traffic = Traffic(broker, replicas)
            feeding = asyncio.create_task(traffic.run())
            try:
                yield Stage(address, run, side, replicas, traffic)
                assert not feeding.done(), feeding.exception()
            finally:
                traffic.over = True
                await feeding
    finally:
        replicas.close()
        await broker.close()
