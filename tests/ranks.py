"""Ranks of a trainer that a test's own process starts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.services.trainer.durability.checkpoint import Checkpoint, CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import HostCopy
from headrace.services.trainer.durability.rank_shards import RankShards


def assemble_ranks(
    size: int,
    place: RankTopology,
    *,
    device: torch.device,
    timeout_s: float,
    grouped: bool = False,
    context: int = 1,
) -> Ranks:
    """Makes this process one of `size` ranks of one machine; the first one starts the others.

    Call it in the main thread. No collective waits longer than `timeout_s`. Raises TransientError when a rank does not
    come in time.
    """
    options = LaunchOptions(device=device, timeout_s=timeout_s, grouped=grouped, context=context)
    return RankProcesses(replace(place, ranks=size), options).join()


def through_checkpoint(folder: Path, ranks: Ranks, files: Mapping[str, Iterable[tuple[str, Tensor]]]) -> Checkpoint:
    """What is loaded of the checkpoint that all ranks write of their rows into `folder`, on every rank."""
    store, shards = CheckpointStore(folder, keep=1), RankShards(ranks)
    if ranks.rank == 0:
        store.prepare(1)
    ranks.barrier()
    taken = HostCopy(torch.device("cpu")).take({"model": (), "optimizer": (), **files}, beside=False)
    if ranks.rank:
        shards.write(store.aside(1), taken)
    else:
        state = CheckpointState(step=1, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest="")
        whole = {"random": {}, **taken.result()}
        store.save(state, whole, ranks=ranks.size, others=lambda: shards.gather(store.aside(1), 60.0))
    ranks.barrier()
    found = store.newest()
    assert found is not None
    ranks.barrier()
    return found
