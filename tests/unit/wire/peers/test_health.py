"""`grpc.health.v1`: whether a process lives, and whether its service can do its work, are two questions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.wire.peers.rpc import channel, serve

NAME = "wire.v1.RolloutService"
STATUS = health_pb2.HealthCheckResponse


class Readiness:
    def __init__(self) -> None:
        self.reason: str | None = "no weights yet"

    def __call__(self) -> str | None:
        return self.reason


@asynccontextmanager
async def health(ready: Readiness) -> AsyncIterator[Any]:
    server = await serve({NAME: lambda _: None}, "127.0.0.1", 0, ready=ready)
    link = channel(f"127.0.0.1:{server.port}")
    try:
        yield health_pb2_grpc.HealthStub(link)
    finally:
        await link.close()
        await server.stop()


async def ask(stub: Any, service: str) -> int:
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return int(answer.status)


async def test_a_process_lives_whether_or_not_its_service_is_ready() -> None:
    ready = Readiness()
    async with health(ready) as stub:
        assert (await ask(stub, ""), await ask(stub, NAME)) == (STATUS.SERVING, STATUS.NOT_SERVING)
        ready.reason = None
        assert (await ask(stub, ""), await ask(stub, NAME)) == (STATUS.SERVING, STATUS.SERVING)


async def test_health_watchers_are_notified_only_of_changes() -> None:
    ready = Readiness()
    async with health(ready) as stub:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=20)
        assert (await watch.read()).status == STATUS.NOT_SERVING
        reading = asyncio.create_task(watch.read())
        await asyncio.sleep(1.5)
        assert not reading.done()
        ready.reason = None
        assert (await reading).status == STATUS.SERVING
