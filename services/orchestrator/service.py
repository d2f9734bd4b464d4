"""The orchestrator's gRPC service and its REST app: translate, delegate, translate back."""

import time
from collections.abc import AsyncIterator, Callable

import grpc
from fastapi import FastAPI

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.api import add_annotation
from headrace.services.orchestrator.http.pages import page_policy
from headrace.services.orchestrator.run import Orchestrator
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.changes import changes
from headrace.services.orchestrator.state.fate_pages import FatePages
from headrace.services.orchestrator.state.run_state import RunPhase
from headrace.wire.access import process as process_access
from headrace.wire.access.tokens import read_token
from headrace.wire.errors import ContractError
from headrace.wire.http import admin_app
from headrace.wire.http.route_roles import accepted
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["OrchestratorService"].full_name


class OrchestratorServicer(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Serves `OrchestratorService` of `proto/wire/v1/orchestrator.proto`."""

    def __init__(self, run: Orchestrator, *, run_id: str) -> None:
        self._run = run
        self._run_id = run_id
        self._pages = FatePages()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def RegisterReplica(  # noqa: D102
        self, request: pb.RegisterReplicaRequest, context: object
    ) -> pb.RegisterReplicaResponse:
        self._check_run(request.run_id)
        self._run.register_replica(request)
        return pb.RegisterReplicaResponse(lease_s=self._run.registry.lease_s)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: object) -> pb.HeartbeatResponse:  # noqa: D102
        now = time.monotonic()
        registered = self._run.registry.heartbeat(request, now)
        drained = self._run.state.operator_requests.drained
        why = self._run.quarantine.judge(request, now)
        share = self._run.registry.share(request.replica_id, now, without=drained)
        return pb.HeartbeatResponse(
            registered=registered,
            share=share,
            disown=request.version if why else None,
            disown_reason=why,
            incarnation=self._run.state.incarnation,
            drain=request.replica_id in drained,
            ended=self._run.ended(request.groups),
            finished=self._run.state.phase is RunPhase.FINISHED,
        )

    async def WatchReplicas(  # noqa: D102
        self, request: pb.WatchReplicasRequest, context: "grpc.aio.ServicerContext[object, pb.ReplicaList]"
    ) -> AsyncIterator[pb.ReplicaList]:
        if request.run_id != self._run_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is run {self._run_id!r}")
        registry, operator = self._run.registry, self._run.state.operator_requests
        async for places in changes(
            lambda: registry.places(time.monotonic(), without=operator.drained), repeat_s=registry.lease_s / 3
        ):
            yield places

    async def ReportEpisodes(  # noqa: D102
        self, request: pb.ReportEpisodesRequest, context: object
    ) -> pb.ReportEpisodesResponse:
        self._check_run(request.run_id)
        self._run.environments.report(request, time.monotonic())
        return pb.ReportEpisodesResponse(lease_s=self._run.registry.lease_s)

    async def RegisterTrainer(  # noqa: D102
        self, request: pb.RegisterTrainerRequest, context: object
    ) -> pb.RegisterTrainerResponse:
        self._check_run(request.run_id)
        whole = self._pages.take(request)
        if whole is None:
            return pb.RegisterTrainerResponse()
        return pb.RegisterTrainerResponse(incarnation=await self._run.register_trainer(whole))

    async def ReportProgress(  # noqa: D102
        self, request: pb.ReportProgressRequest, context: object
    ) -> pb.ReportProgressResponse:
        return await self._run.report(request)

    async def TakeTurn(self, request: pb.TakeTurnRequest, context: object) -> pb.TakeTurnResponse:  # noqa: D102
        self._check_run(request.run_id)
        waiting_for = await self._run.take_turn(request.incarnation)
        return pb.TakeTurnResponse(granted=not waiting_for, waiting_for=waiting_for)

    async def Publish(self, request: pb.PublishRequest, context: object) -> pb.PublishResponse:  # noqa: D102
        return await self._run.publish(request)

    def _check_run(self, run_id: str) -> None:
        if run_id != self._run_id:
            raise ContractError("wrong_run", f"this is run {self._run_id!r}, the caller is of run {run_id!r}")


def rest_app(ready: Callable[[], str | None], annotation: AnnotationService, settings: OrchestratorSettings) -> FastAPI:
    """App with health, metrics and the annotation page, behind a guard that accepts the tokens of this process.

    Raises ConfigError for tokens that cannot be read.
    """
    # The name by which its peers address it; no foreign page can be served under it.
    own = settings.reach if settings.grpc_socket else settings.orchestrator_address.rpartition(":")[0]
    table = settings.orchestrator
    roles_of = accepted(process_access.current(), read_token(table.operator_token_file))
    policy = page_policy(settings.host, roles_of, hosts=(*table.http_hosts, own))
    app = admin_app("orchestrator", ready, policy=policy)
    add_annotation(app, annotation)
    return app
