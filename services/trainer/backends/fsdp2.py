"""Several ranks by FSDP2: weights, gradients and optimizer state in shards."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from headrace.services.trainer.backends.options import BackendOptions, overhead_tokens
from headrace.services.trainer.backends.parking import Parking
from headrace.services.trainer.backends.sharding import shard
from headrace.services.trainer.backends.state import (
    check_weights,
    find_tensors,
    load_state,
    optimizer_state,
    set_weights,
)
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import build_optimizers


class FullyShardedBackend:
    """Implements `headrace.services.trainer.backends.backend.Backend` with all state sharded as DTensors."""

    def __init__(self, module: TrainedModule, ranks: Ranks, device: torch.device, options: BackendOptions) -> None:
        """Shards `module` in place; it must be the same on every rank."""
        shard(module, ranks, device, cpu_offload=options.cpu_offload, compiled=options.compiled)
        self.module = module
        self.ranks = ranks
        self.device = device
        self.overhead_tokens = overhead_tokens(device)
        self._named = dict(module.named_weights())
        self._optimizers = build_optimizers(module, options.optimizer)
        self._parking = Parking(self.device)

    def __call__(self, *inputs: Any) -> Any:
        """Runs the sharded module's forward pass."""
        return self.module(*inputs)

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Reduces every micro-batch's gradient into the shards at once, so no whole gradient is ever accumulated."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """Clips by the norm over all shards, then steps the optimizers unless that norm is not finite."""
        limit = grad_clip if grad_clip > 0 else math.inf
        norm = float(_whole(nn.utils.clip_grad_norm_(self._named.values(), limit)))
        if math.isfinite(norm):
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate
                optimizer.step()
        self.discard()
        return norm

    def discard(self) -> None:
        """Clears the gradient shards."""
        for weight in self._named.values():
            weight.grad = None

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the weights as sharded DTensors."""
        return ((name, weight.detach()) for name, weight in self._named.items())

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the named weights and buffers, sharded where the model is."""
        return [tensor.detach() for tensor in find_tensors(self.module, self._named, names)]

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Gathers one weight at a time and copies it to the CPU."""
        return ((name, _whole(weight.detach()).cpu()) for name, weight in self._named.items())

    def whole_state(self) -> dict[str, Tensor]:
        """Gathers the exported state dict with `whole_state`."""
        return whole_state(self.module, self.ranks)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Gathers the optimizer state, parked tensors included; rank 0 keeps it."""
        tensors: dict[str, Tensor] = {}
        for name, value in optimizer_state(self._named, self._optimizers):
            whole = _whole(self._parking.present(value))
            if self.ranks.rank == 0:
                tensors[name] = whole.cpu()
        return tensors

    def park(self) -> int:
        """Moves this rank's optimizer shards to host memory."""
        return self._parking.park(self._optimizers)

    def unpark(self) -> int:
        """Moves this rank's optimizer shards back to the device."""
        return self._parking.unpark()

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Copies the whole tensors of a checkpoint into the local shards."""
        check_weights(self._named, weights)
        self._parking.forget()
        set_weights(self._named, weights)
        load_state(self._named, self._optimizers, optimizer, leads=self.ranks.rank == 0)


def whole_state(module: TrainedModule, ranks: Ranks) -> dict[str, Tensor]:
    """Gathers the exported state dict of a sharded module on rank 0; tied tensors stay one. Every rank must call it."""
    if module.quantized:
        return {}
    whole: dict[Tensor, Tensor] = {}
    state: dict[str, Tensor] = {}
    # Kept alive and not detached: tied weights are one tensor here, which they are not in a plain state dict.
    tensors = dict(module.model.state_dict(keep_vars=True))
    for name, tensor in tensors.items():
        if tensor not in whole:
            gathered = _whole(tensor.detach())
            whole[tensor] = gathered.cpu() if ranks.rank == 0 else torch.empty(0)
        state[name] = whole[tensor]
    return {} if ranks.rank else module.export_state(state)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
