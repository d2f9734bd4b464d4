"""A receiving process of `benchmarks.publication`: a replica, or one end of the bare loop."""

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import torch

from headrace.services.rollout.app import make_engine, run_replica
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.rollout.text import TextDecoder
from headrace.wire.errors import TransientError
from headrace.wire.lifecycle import Shutdown, die_with_parent
from headrace.wire.streams.memory import MemoryBroker
from headrace.wire.weights import CollectiveGroup


def bare(port: int, rank: int, world: int, sizes: list[int]) -> None:
    """Receives the same buckets until the sender leaves."""
    group = CollectiveGroup.join("bare", "gloo", "127.0.0.1", port, rank, world, 60.0)
    buckets = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    with suppress(TransientError):
        while True:
            for bucket in buckets:
                group.broadcast(bucket, 3600.0)


async def replica(config: Path) -> None:
    """The rollout service without a broker: no prompt ever comes."""
    settings = RolloutSettings.model_validate_json(config.read_text())
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    engine = make_engine(settings)
    await run_replica(settings, engine, TextDecoder(settings.model.path), MemoryBroker(), shutdown)


if __name__ == "__main__":
    die_with_parent()
    torch.set_num_threads(1)
    if sys.argv[1] == "bare":
        bare(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
    else:
        asyncio.run(replica(Path(sys.argv[2])))
