"""Ranks of a trainer that a test's own process starts."""

from dataclasses import replace

import torch

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.topology import RankTopology


def assemble_ranks(
    size: int, place: RankTopology, *, device: torch.device, timeout_s: float, grouped: bool = False
) -> Ranks:
    """Makes this process one of `size` ranks of one machine; the first one starts the others.

    Call it in the main thread. No collective waits longer than `timeout_s`. Raises TransientError when a rank does not
    come in time.
    """
    options = LaunchOptions(device=device, timeout_s=timeout_s, grouped=grouped)
    return RankProcesses(replace(place, ranks=size), options).join()
