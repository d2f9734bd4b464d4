"""The stage of `benchmarks.publication`: coordinator and trainer side in this process, replicas in theirs."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator as Coordinator
from headrace.services.orchestrator.publication.session import PublicationSession
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.service import TrainerServicer
from headrace.wire.rpc import RpcServer, serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one publication."""

    held: float
    """The training step waits: the snapshot is taken."""
    prepare: float
    transfer: float
    verify: float
    commit: float
    published: float
    """From the snapshot to the last commit."""


class _Registrar(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """What replicas tell the orchestrator."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def RegisterReplica(self, request: Any, context: Any) -> pb.RegisterReplicaResponse:
        self._registry.register(request, time.monotonic())
        return pb.RegisterReplicaResponse(lease_s=self._registry.lease_s)

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(registered=self._registry.heartbeat(request, time.monotonic()))


class Stage:
    """Replicas that wait for weights."""

    def __init__(self, folder: Path, model: Path, publisher: Publisher, *, replicas: int) -> None:
        self._folder, self._model, self._publisher, self._count = folder, model, publisher, replicas
        self._registry = Registry(lease_s=60.0)
        self._state = RunState(Store(folder / "state.sqlite"), max_steps=1)
        self._peers = Clients()
        self._coordinator = Coordinator(
            self._state, self._registry, self._peers, EventLog(folder, "orchestrator", 1), PublicationTable()
        )
        self._servers: list[RpcServer] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Self:
        """Starts everything and waits until all replicas are there."""
        registrar = _Registrar(self._registry)
        orchestrator = await self._serve("wire.v1.OrchestratorService", _adder(registrar))
        servicer = TrainerServicer(self._publisher, lambda: "")
        trainer = await self._serve("wire.v1.TrainerService", servicer.add_to)
        await self._state.register_trainer(
            pb.RegisterTrainerRequest(address=f"127.0.0.1:{trainer}", boot_id="t", routes=self._publisher.routes)
        )
        for index in range(self._count):
            config = self._folder / f"rollout-{index}.json"
            settings = {
                "run": {"id": "bench"},
                "model": {"path": self._model},
                "run_dir": self._folder,
                "instance": str(index),
                "orchestrator_address": f"127.0.0.1:{orchestrator}",
                "rollout": {"max_rows": 8},
            }
            config.write_text(RolloutSettings.model_validate(settings).model_dump_json())
            argv = [sys.executable, "-m", "benchmarks.publication_peer", "replica", str(config)]
            self._processes.append(subprocess.Popen(argv))
        end = time.monotonic() + 120
        while len(self._registry.members(time.monotonic())) < self._count:
            if time.monotonic() > end:
                raise TimeoutError("the replicas did not come")
            await asyncio.sleep(0.05)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends everything."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)
        await self._peers.close()
        for server in self._servers:
            await server.stop(0)

    async def publish(self, backend: Backend, version: int) -> Times:
        """Takes a snapshot and publishes it; raises RuntimeError if a replica missed it."""
        begin = time.perf_counter()
        held = self._publisher.hold(backend, version)
        taken = time.perf_counter()
        request = pb.PublishRequest(
            incarnation=self._state.incarnation, version=version, plan=held.snapshot.plan, canary=held.canary
        )
        phases = _PhaseClock()
        with phases:
            answer = await self._coordinator.publish(request)
        done = time.perf_counter()
        if not all(outcome.committed for outcome in answer.outcomes) or len(answer.outcomes) != self._count:
            raise RuntimeError(str(answer))
        return Times(taken - begin, *phases.seconds.values(), done - taken)

    async def _serve(self, name: str, add: Callable[[grpc.aio.Server], None]) -> int:
        server = await serve({name: add}, "127.0.0.1", 0)
        self._servers.append(server)
        return server.port


def _adder(servicer: _Registrar) -> Callable[[grpc.aio.Server], None]:
    def add(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(servicer, server)

    return add


class _PhaseClock:
    """Notes how long each phase of a session takes."""

    def __init__(self) -> None:
        self.seconds = {"prepare": 0.0, "transfer": 0.0, "verify": 0.0, "commit": 0.0}

    def __enter__(self) -> None:
        original = self._original = PublicationSession._phase

        async def timed(session: PublicationSession, name: str, *rest: Any) -> Any:
            begin = time.perf_counter()
            try:
                return await original(session, name, *rest)
            finally:
                self.seconds[name] = time.perf_counter() - begin

        PublicationSession._phase = timed  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        PublicationSession._phase = self._original  # type: ignore[method-assign]
