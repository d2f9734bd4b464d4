"""Several ranks by FSDP2: weights, gradients and optimizer state in shards."""

import torch
from torch import Tensor

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.sharding import shard
from headrace.services.trainer.backends.torch_backend import TorchBackend, whole
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule


class FullyShardedBackend(TorchBackend):
    """Implements `headrace.services.trainer.backends.backend.Backend` with all state sharded as DTensors."""

    def __init__(self, module: TrainedModule, ranks: Ranks, device: torch.device, options: BackendOptions) -> None:
        """Shards `module` in place; it must be the same on every rank."""
        shard(module, ranks, device, cpu_offload=options.cpu_offload, compiled=options.compiled)
        super().__init__(module, ranks, device, options.optimizer)

    def whole_state(self) -> dict[str, Tensor]:
        """Gathers the exported state dict with `whole_state`."""
        return whole_state(self.module, self.ranks)


def whole_state(module: TrainedModule, ranks: Ranks) -> dict[str, Tensor]:
    """Gathers the exported state dict of a sharded module on rank 0; tied tensors stay one. Every rank must call it."""
    if module.quantized:
        return {}
    gathered: dict[Tensor, Tensor] = {}
    state: dict[str, Tensor] = {}
    # Kept alive and not detached: tied weights are one tensor here, which they are not in a plain state dict.
    tensors = dict(module.model.state_dict(keep_vars=True))
    for name, tensor in tensors.items():
        if tensor not in gathered:
            found = whole(tensor.detach())
            gathered[tensor] = found.cpu() if ranks.rank == 0 else torch.empty(0)
        state[name] = gathered[tensor]
    return {} if ranks.rank else module.export_state(state)
