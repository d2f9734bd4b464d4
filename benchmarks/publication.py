"""How fast new weights reach two replicas over gloo, beside a bare broadcast loop of the same bytes.

    python -m benchmarks.publication --json

Real replicas (processes of the rollout service with the torch engine), the real coordinator, the real trainer side; the
model is 500 MB of float32. Each round first broadcasts the same buckets in a bare loop, over one group of three ranks
and over two groups of two, then publishes the weights. Ratios are taken in each round, medians over the rounds.
"""

import argparse
import asyncio
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from benchmarks.publication_stage import Stage, Times
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.wire.weights import CollectiveGroup, open_store

MIB = 1024 * 1024
REPLICAS = 2
_LAYERS = 10
_LIMIT_S = 60.0


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bucket-mib", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(Path(folder), options.rounds, options.bucket_mib * MIB))
    sys.stdout.write((json.dumps(result) if options.json else json.dumps(result, indent=1)) + "\n")


async def measure(folder: Path, rounds: int, bucket_bytes: int) -> dict[str, object]:
    """Medians in seconds and ratios."""
    model = folder / "model"
    shape = Shape(hidden=1024, intermediate=3072, layers=_LAYERS, heads=8, kv_heads=4, head_dim=128, context=256)
    write_model(model, character_tokenizer("0123456789+="), shape, seed=0)
    policy = load_policy(model, device="cpu", forward_dtype=torch.float32)
    backend = SingleDevice(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    publisher = Publisher(
        host="127.0.0.1",
        dtype=torch.float32,
        bucket_bytes=bucket_bytes,
        weights_folder=folder / "weights",
        model_path=model,
        disk_only=False,
        canary=partial(make_canary, seed=0, length=16, tolerance=1e-3, chunk=256),
    )
    sizes = [bucket.size_bytes for bucket in publisher.hold(backend, 0).snapshot.plan.buckets]
    bare = {"one_group": [], "group_each": []}  # type: dict[str, list[float]]
    found: list[Times] = []
    async with Stage(folder, model, publisher, replicas=REPLICAS) as stage:
        await stage.publish(backend, 0)  # Engines build their caches, groups are joined, buffers are faulted in.
        await stage.publish(backend, 1)
        with peers(sizes, shared=True) as one, peers(sizes, shared=False) as each:
            for round_ in range(rounds):
                bare["one_group"].append(await asyncio.to_thread(one))
                bare["group_each"].append(await asyncio.to_thread(each))
                found.append(await stage.publish(backend, round_ + 2))
    return report(sum(sizes), bare, found)


def report(size: int, bare: dict[str, list[float]], found: list[Times]) -> dict[str, object]:
    """What the rounds say."""

    def middle(values: Sequence[float]) -> float:
        return round(statistics.median(values), 4)

    rates = {name: [a / b.transfer for a, b in zip(bare[name], found, strict=True)] for name in bare}
    whole = [a / b.published for a, b in zip(bare["one_group"], found, strict=True)]
    return {
        "megabytes": round(size / 1e6),
        "bare_one_group_s": middle(bare["one_group"]),
        "bare_group_each_s": middle(bare["group_each"]),
        **{f"{name}_s": middle([getattr(times, name) for times in found]) for name in dataclasses.asdict(found[0])},
        "transfer_rate_of_bare_one_group": middle(rates["one_group"]),
        "transfer_rate_of_bare_group_each": middle(rates["group_each"]),
        "publication_rate_of_bare_one_group": middle(whole),
        "step_held_share": middle([times.held / (times.held + times.published) for times in found]),
        "rounds": len(found),
    }


@contextmanager
def peers(sizes: list[int], *, shared: bool) -> Iterator["BareLoop"]:
    """Receivers of the bare loop: in one group of all, or each in a group of its own with the sender."""
    stores = [open_store("127.0.0.1") for _ in range(1 if shared else REPLICAS)]
    world = 1 + REPLICAS if shared else 2
    processes, senders = [], []
    try:
        for index in range(REPLICAS):
            port = stores[0 if shared else index][1]
            rank = index + 1 if shared else 1
            argv = ["bare", str(port), str(rank), str(world), json.dumps(sizes)]
            processes.append(subprocess.Popen([sys.executable, "-m", "benchmarks.publication_peer", *argv]))
        senders = [CollectiveGroup.join("bare", "gloo", "127.0.0.1", port, 0, world, _LIMIT_S) for _, port in stores]
        yield BareLoop(sizes, senders)
    finally:
        for sender in senders:
            sender.abort()
        for process in processes:
            process.kill()
            process.wait(10)


class BareLoop:
    """Broadcasts the same buckets, and nothing else; called, it returns the seconds of one pass."""

    def __init__(self, sizes: list[int], groups: Sequence[CollectiveGroup]) -> None:
        self._buckets = [torch.ones(size, dtype=torch.uint8) for size in sizes]
        self._groups = groups
        self._threads = ThreadPoolExecutor(len(groups))
        self()

    def __call__(self) -> float:
        begin = time.perf_counter()
        list(self._threads.map(self._send, self._groups))
        return time.perf_counter() - begin

    def _send(self, group: CollectiveGroup) -> None:
        for bucket in self._buckets:
            group.broadcast(bucket, _LIMIT_S)


if __name__ == "__main__":
    main(sys.argv[1:])
