"""The gRPC and HTTP APIs of the trainer: translate, delegate, translate back."""

from collections.abc import Callable

import grpc
from fastapi import FastAPI

from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.reporter import wire_fates
from headrace.wire.config.settings import ServiceSettings
from headrace.wire.errors import TransientError
from headrace.wire.http import HttpPolicy, admin_app
from headrace.wire.v1 import common_pb2, trainer_pb2_grpc
from headrace.wire.v1 import trainer_pb2 as pb

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TrainerService"].full_name


class TrainerServicer(trainer_pb2_grpc.TrainerServiceServicer):
    """Implements `proto/wire/v1/trainer.proto`.

    Serves from process start; `ledger` is set after registration.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.ledger: JournaledLedger | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self, server)

    async def GetFates(self, request: pb.GetFatesRequest, context: object) -> pb.GetFatesResponse:  # noqa: D102
        ledger = self._ledger()
        # One more than wanted shows whether there are more.
        progress = ledger.progress(from_index=request.from_index, most=request.most + 1 if request.most else None)
        wanted = progress.fates[: request.most or None]
        return pb.GetFatesResponse(
            frontier=progress.frontier,
            fates=wire_fates(wanted),
            more=len(wanted) < len(progress.fates),
            version=progress.version,
            incarnation=ledger.incarnation,
        )

    async def OpenGroup(self, request: pb.OpenGroupRequest, context: object) -> pb.OpenGroupResponse:  # noqa: D102
        refused = self._publisher.sender.abandoned.refusal(request.replica_id)
        if refused:
            return pb.OpenGroupResponse(refused=refused)
        host, port = await self._publisher.open_group(request.version, request.group_name, request.replica_id)
        return pb.OpenGroupResponse(store_host=host, store_port=port)

    async def SendWeights(self, request: pb.SendWeightsRequest, context: object) -> pb.SendWeightsResponse:  # noqa: D102
        await self._publisher.send(
            request.version, request.group_name, request.backend, request.world_size, request.deadline_s
        )
        return pb.SendWeightsResponse()

    async def CloseGroup(self, request: pb.CloseGroupRequest, context: object) -> pb.CloseGroupResponse:  # noqa: D102
        await self._publisher.sender.close(request.group_name)
        return pb.CloseGroupResponse()

    async def SaveWeights(self, request: pb.SaveWeightsRequest, context: object) -> pb.SaveWeightsResponse:  # noqa: D102
        return pb.SaveWeightsResponse(disk_path=await self._publisher.save(request.version))

    async def GetChecksums(  # noqa: D102
        self, request: pb.GetChecksumsRequest, context: object
    ) -> pb.GetChecksumsResponse:
        publisher = self._publisher
        ask = publisher.folder_checksums if request.model_folder else publisher.checksums
        found = await ask(request.version, request.format)
        return pb.GetChecksumsResponse(
            checksums=[common_pb2.TensorChecksum(name=name, value=value) for name, value in found.items()]
        )

    def _ledger(self) -> JournaledLedger:
        if self.ledger is None:
            raise TransientError("the trainer is replaying its journal")
        return self.ledger


def http_app(ready: Callable[[], str | None], settings: ServiceSettings) -> FastAPI:
    """Returns the HTTP app with health and metrics."""
    return admin_app("trainer", ready, policy=HttpPolicy.of(settings))
