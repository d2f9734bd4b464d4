"""Killed at a failpoint outside of a run: `alone.py POINTS worker URL`, `alone.py POINTS folder PATH`."""

import asyncio
import sys
from pathlib import Path

from headrace.wire import failpoints
from headrace.wire.contracts import DropReason, Message
from headrace.wire.rundir.atomic import replaced_folder
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker


async def fail(folder: Path, url: str) -> None:
    """A worker whose handler fails each time, until its group is buried."""
    broker, stop, calls = RedisBroker(url, "test"), asyncio.Event(), folder / "calls"

    async def handle(message: Message) -> list[Put]:
        with calls.open("a") as file:
            file.write(f"{message.header.group_index}\n")
        raise RuntimeError("no answer")

    worker = Worker(
        *(broker, StreamName.ROLLOUTS, "reward-0", handle),
        service="reward",
        lease_s=1.0,
        capacity=lambda in_flight: 1 - in_flight,
        failure=DropReason.SCORER_FAILED,
        observe=lambda outcome: stop.set() if outcome == "buried" else None,
    )
    await worker.run(stop)
    await broker.close()


def replace(folder: Path) -> None:
    """Writes a folder in place of an older one."""
    with replaced_folder(folder, durable=True) as aside:
        for name in ("a", "b"):
            (aside / name).write_text(f"{len(list(folder.glob('*')))}")


if __name__ == "__main__":
    points, what, target = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    failpoints.install("alone", str(points))
    if what == "worker":
        asyncio.run(fail(points, target))
    else:
        replace(Path(target))
