"""A stage of the pipeline as a process of its own, for the stream chaos test: `stage.py URL FROM TO NAME`."""

import asyncio
import random
import sys

from headrace.wire.contracts import DropReason, Message, encode
from headrace.wire.lifecycle import Shutdown
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker


async def main(url: str, source: str, target: str, name: str) -> None:
    """Passes each group on after a while, until SIGTERM."""
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())

    async def pass_on(message: Message) -> list[Put]:
        await asyncio.sleep(random.expovariate(1 / 0.1))
        return [Put(stream=StreamName(target), data=encode(message))]

    broker = RedisBroker(url, "test")
    worker = Worker(
        broker,
        StreamName(source),
        name,
        pass_on,
        service="test",
        lease_s=1.0,
        capacity=lambda in_flight: 8 - in_flight,
        failure=DropReason.ROLLOUT_FAILED,
    )
    await worker.run(shutdown.event)
    await broker.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
