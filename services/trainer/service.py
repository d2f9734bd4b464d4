"""The gRPC and HTTP faces of the trainer: translate, delegate, translate back."""

from collections.abc import Callable
from typing import Any

import grpc
from fastapi import FastAPI

from services.trainer.book import Book
from services.trainer.publisher import Publisher
from services.trainer.reporter import wire_fates
from wire.errors import TransientError
from wire.http import admin_app
from wire.v1 import trainer_pb2 as pb
from wire.v1 import trainer_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TrainerService"].full_name


class TrainerServicer(trainer_pb2_grpc.TrainerServiceServicer):
    """See `proto/wire/v1/trainer.proto`. Serves from the process's start; `book` comes with the registration."""

    def __init__(self, publisher: Publisher, waiting_for: Callable[[], str]) -> None:
        self._publisher = publisher
        self._waiting_for = waiting_for
        self.book: Book | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self, server)

    async def GetFates(self, request: pb.GetFatesRequest, context: Any) -> pb.GetFatesResponse:  # noqa: D102
        book = self._book()
        progress = book.progress(from_index=request.from_index)
        return pb.GetFatesResponse(
            frontier=progress.frontier,
            fates=wire_fates(progress.fates),
            version=progress.version,
            incarnation=book.incarnation,
        )

    async def OpenGroup(self, request: pb.OpenGroupRequest, context: Any) -> pb.OpenGroupResponse:  # noqa: D102
        host, port, backend = await self._publisher.open_group(request.version, request.group_name)
        return pb.OpenGroupResponse(store_host=host, store_port=port, backend=backend)

    async def SendWeights(self, request: pb.SendWeightsRequest, context: Any) -> pb.SendWeightsResponse:  # noqa: D102
        await self._publisher.send(
            request.version, request.group_name, request.backend, request.world_size, request.deadline_s
        )
        return pb.SendWeightsResponse()

    async def GetTrainer(self, request: pb.GetTrainerRequest, context: Any) -> pb.GetTrainerResponse:  # noqa: D102
        book = self._book()
        return pb.GetTrainerResponse(
            incarnation=book.incarnation, version=book.version, waiting_for=self._waiting_for()
        )

    def _book(self) -> Book:
        if self.book is None:
            raise TransientError("the trainer is replaying its journal")
        return self.book


def http_app(ready: Callable[[], str | None]) -> FastAPI:
    """Health and metrics."""
    return admin_app("trainer", ready)
