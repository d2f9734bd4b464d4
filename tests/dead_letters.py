"""Groups of a live run that a replica gives up."""

import asyncio

from headrace.wire.contracts import DropReason, Purpose, decode_header
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import bury_puts


async def bury_prompts(url: str, run_id: str, count: int) -> None:
    """Takes training prompts as a replica would, and gives them up; those of an evaluation are handed back."""
    broker = RedisBroker(url, run_id)
    consumer = broker.consumer(StreamName.PROMPTS, "gives-up", lease_s=30)
    async with asyncio.timeout(90):
        while count:
            for entry in await consumer.read(count=1, block_s=1):
                if decode_header(entry.data).purpose is Purpose.EVAL:
                    await consumer.release([entry])
                    continue
                puts = bury_puts(entry.data, DropReason.ROLLOUT_FAILED, "the engine said no", "rollout")
                await consumer.settle(entry, puts)
                count -= 1
    await broker.close()
