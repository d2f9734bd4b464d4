"""A span crosses gRPC: what the callee opens belongs under the caller's."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.wire import tracing
from headrace.wire.peers.rpc import call, channel, serve
from headrace.wire.v1 import trainer_pb2, trainer_pb2_grpc
from tests.spans import Kept, parent, recording, traceparent

SERVICE_NAME = trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"].full_name


class Trainer(trainer_pb2_grpc.TrainerServiceServicer):
    def __init__(self) -> None:
        self.metadata: list[str] = []

    async def GetFates(self, request: Any, context: Any) -> trainer_pb2.GetFatesResponse:
        self.metadata = [key for key, _ in context.invocation_metadata()]
        with tracing.span("answer"):
            return trainer_pb2.GetFatesResponse()


@pytest.fixture
def kept() -> Iterator[Kept]:
    with recording() as found:
        yield found


@asynccontextmanager
async def served(trainer: Trainer) -> AsyncIterator[str]:
    """Started outside of any span: a server's tasks keep the surroundings of its start."""
    server = await serve(
        {SERVICE_NAME: lambda found: trainer_pb2_grpc.add_TrainerServiceServicer_to_server(trainer, found)},
        "127.0.0.1",
        0,
    )
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


async def ask(address: str) -> None:
    async with channel(address) as link:
        stub = trainer_pb2_grpc.TrainerServiceStub(link)
        await call(stub.GetFates, trainer_pb2.GetFatesRequest(), timeout_s=10, what="an answer")


async def test_the_callee_goes_on_with_the_callers_trace(kept: Kept) -> None:
    async with served(Trainer()) as address:
        with tracing.span("ask", begins=True):
            await ask(address)
    assert parent(kept["answer"]) == traceparent(kept["ask"])


async def test_disabled_tracing_sends_no_headers() -> None:
    trainer = Trainer()
    async with served(trainer) as address:
        with tracing.span("ask", begins=True):
            await ask(address)
    assert trainer.metadata and "traceparent" not in trainer.metadata
