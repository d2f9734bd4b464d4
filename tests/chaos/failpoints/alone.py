"""Killed at a failpoint outside of a run: `alone.py POINTS SERVICE DOES TARGET [NAME]`.

DOES is what the worker of the service does with each group, the consumer NAME of the broker at TARGET: `fail` each
time, `settle`, `hand_back` the first time, take `long`. Or it is `folder`, which writes the folder TARGET anew.
"""

import asyncio
import sys
from pathlib import Path

from headrace.wire import failpoints
from headrace.wire.contracts import DropReason, Message, encode
from headrace.wire.rundir.atomic import replaced_folder
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import HandBack, Worker

READS = {
    "environment": StreamName.EPISODES,
    "orchestrator": StreamName.EVALUATED,
    "reward": StreamName.ROLLOUTS,
    "rollout": StreamName.PROMPTS,
}
"""Service -> the stream whose entries its worker takes, as its `app.py` makes it."""
LEASE_S = 1.0


async def work(folder: Path, service: str, does: str, url: str, name: str) -> None:
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
        *(broker, READS[service], name, handle),
        service=service,
        lease_s=LEASE_S,
        capacity=lambda in_flight: 1 - in_flight,
        failure=DropReason.SCORER_FAILED,
        observe=lambda outcome: stop.set() if outcome in ("buried", "settled") else None,
    )
    await worker.run(stop)
    await broker.close()


def replace(folder: Path) -> None:
    """Writes a folder in place of an older one."""
    with replaced_folder(folder, durable=True) as aside:
        for name in ("a", "b"):
            (aside / name).write_text(f"{len(list(folder.glob('*')))}")


if __name__ == "__main__":
    points, owner, action, target, *names = sys.argv[1:]
    failpoints.install(owner, points)
    if action == "folder":
        replace(Path(target))
    else:
        asyncio.run(work(Path(points), owner, action, target, *names))
