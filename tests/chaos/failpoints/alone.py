"""A worker of the reward service's stream that dies at a failpoint outside of a run: `alone.py POINTS DOES URL NAME`.

DOES is what it does with each group, as the consumer NAME: `fail` each time, `settle`, `hand_back` the first time, take
`long`.
"""

import asyncio
import sys
from pathlib import Path

from headrace.wire.contracts import DropReason, Message, encode
from headrace.wire.process import failpoints
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import HandBack, Worker

LEASE_S = 1.0


async def work(folder: Path, does: str, url: str, name: str) -> None:
    """Works until a group is settled or buried; each call of the handler is a line of `calls`."""
    broker, stop, calls = RedisBroker(url, "test"), asyncio.Event(), folder / "calls"

    async def handle(message: Message) -> list[Put]:
        with calls.open("a") as file:
            file.write(f"{message.header.group_index}\n")
        if does == "fail":
            raise RuntimeError("no answer")
        if does == "hand_back" and calls.read_text().count("\n") == 1:
            raise HandBack("not yet")
        if does == "long":
            await asyncio.sleep(LEASE_S)
        return [Put(stream=StreamName.SCORED, data=encode(message))]

    worker = Worker(
        *(broker, StreamName.ROLLOUTS, name, handle),
        service="reward",
        lease_s=LEASE_S,
        capacity=lambda in_flight: 1 - in_flight,
        failure=DropReason.SCORER_FAILED,
        observe=lambda outcome: stop.set() if outcome in ("buried", "settled") else None,
    )
    await worker.run(stop)
    await broker.close()


if __name__ == "__main__":
    points, action, target, name = sys.argv[1:]
    failpoints.install("reward", points)
    asyncio.run(work(Path(points), action, target, name))
