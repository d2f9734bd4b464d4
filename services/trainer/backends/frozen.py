"""A model that is evaluated and never trained (the KL's reference), sharded over the ranks like the one in training."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from headrace.services.trainer.backends.sharding import shard
from headrace.services.trainer.backends.state import check_weights, own_rows, set_weights
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule


class Frozen:
    """A model with a forward pass only. Every rank calls every method, in the same order."""

    def __init__(self, module: TrainedModule, ranks: Ranks, device: torch.device, *, cpu_offload: bool = False) -> None:
        """Takes `module` over, the same one on every rank."""
        module.requires_grad_(False)
        module.eval()
        if ranks.size > 1:
            shard(module, ranks, device, cpu_offload=cpu_offload, compiled=False)
        self.module = module
        self.device = device

    @torch.no_grad()
    def __call__(self, *inputs: object) -> Any:
        """Runs the module's forward pass, without a gradient."""
        return self.module(*inputs)

    def weight_rows(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of each weight."""
        return own_rows(((name, weight.detach()) for name, weight in self.module.named_weights()), rank)

    def load(self, weights: Mapping[str, Tensor], *, share: float = 1.0) -> None:
        """Sets the weights to whole tensors, given on every rank by the names of `module.named_weights`.

        A `share` below 1 moves them by that share of the way.
        Raises ValueError if the names or shapes are not the model's.
        """
        named = dict(self.module.named_weights())
        check_weights(named, weights)
        set_weights(named, weights, share=share)


def make_frozen(module: TrainedModule, ranks: Ranks, device: torch.device, *, cpu_offload: bool = False) -> Frozen:
    """Freezes `module`. Several ranks shard it by FSDP2, regardless of the backend that trains."""
    return Frozen(module, ranks, device, cpu_offload=cpu_offload)
