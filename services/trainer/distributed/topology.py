"""The position of a process among the ranks of its trainer, and its device."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTopology:
    """One process of `ranks`, on machine `node` of `nodes`. Each machine has equally many ranks, numbered in a row."""

    rank: int = 0
    ranks: int = 1
    port: int = 0
    """Port of the store that the first process of the machine opens for its children; 0 for that process itself."""
    node: int = 0
    nodes: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the first process of its machine, which starts the others there."""
        return self.port == 0

    @property
    def local(self) -> int:
        """The rank within the machine."""
        return self.rank % (self.ranks // self.nodes)

    def children(self, port: int) -> list["RankTopology"]:
        """Returns the positions of the other processes of this machine."""
        each = self.ranks // self.nodes
        return [replace(self, rank=rank, port=port) for rank in range(self.rank + 1, (self.node + 1) * each)]

    def name(self, rank: int) -> str:
        """Names any rank, for logs and errors."""
        return f"rank {rank} of node {rank // (self.ranks // self.nodes)}"

    def arguments(self) -> list[str]:
        """Returns the command-line arguments of this position; settings or environment name the machine."""
        return ["--rank", str(self.rank), "--ranks", str(self.ranks), "--rank-port", str(self.port)]


def read_place(arguments: Sequence[str]) -> RankTopology:
    """Reads the position on one machine from a command line; without one, it is the first rank's."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank-port", type=int, default=0)
    found = parser.parse_known_args(list(arguments))[0]
    return RankTopology(rank=found.rank, ranks=found.ranks, port=found.rank_port)


def settle_place(settings: TrainerSettings | StageSettings, arguments: Sequence[str] = ()) -> RankTopology:
    """Returns the position that settings and command line give. Raises ConfigError without a place to meet."""
    table, node = settings.trainer, settings.node
    if table.nodes > 1 and not table.rendezvous:
        raise ConfigError(
            f"trainer.nodes = {table.nodes} needs HEADRACE_RENDEZVOUS (or trainer.rendezvous) = host:port, where "
            "machine 0 meets the others: an address of it that all others can reach, and a free port"
        )
    place = read_place(arguments)
    rank = node * (table.ranks // table.nodes) if place.first else place.rank
    return replace(place, rank=rank, ranks=table.ranks, node=node, nodes=table.nodes)


def rank_device(device: str, local: int) -> torch.device:
    """Returns the device of a rank, counted from `device` (`cuda:2` is the first rank's); the CPU is shared by all."""
    first = torch.device(device)
    return first if first.type == "cpu" else torch.device(first.type, (first.index or 0) + local)
