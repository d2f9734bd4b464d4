"""What the backends with torch's own optimizers share: whole weights on one device, or FSDP2's shards."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from headrace.services.trainer.backends.options import overhead_tokens
from headrace.services.trainer.backends.parking import Parking
from headrace.services.trainer.backends.state import (
    check_weights,
    find_tensors,
    load_state,
    optimizer_state,
    own_rows,
    set_weights,
)
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import OptimizerOptions, build_optimizers


class TorchBackend:
    """Implements `headrace.services.trainer.backends.backend.Backend`, less the exported state.

    With shards, every rank must make the same calls.
    """

    def __init__(self, module: TrainedModule, ranks: Ranks, device: torch.device, optimizer: OptimizerOptions) -> None:
        """`module` is compiled and sharded already."""
        self.module = module
        self.ranks = ranks
        self.device = device
        self.overhead_tokens = overhead_tokens(device)
        self._named = dict(module.named_weights())
        self._optimizers = build_optimizers(module, optimizer)
        self._parking = Parking(device)
        self.before_change: Callable[[], None] = lambda: None

    def __call__(self, *inputs: object) -> Any:
        """Runs the module's forward pass."""
        return self.module(*inputs)

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Accumulates the gradient in each weight's `grad`; shards are reduced at once, so that none is ever whole."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """Clips by the norm over all shards, then steps the optimizers unless that norm is not finite."""
        limit = grad_clip if grad_clip > 0 else math.inf
        norm = float(whole(nn.utils.clip_grad_norm_(self._named.values(), limit)))
        self.before_change()
        if math.isfinite(norm):
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate
                optimizer.step()
        self.discard()
        return norm

    def discard(self) -> None:
        """Clears the gradients."""
        for weight in self._named.values():
            weight.grad = None

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the weights, detached; shards as DTensors."""
        return ((name, weight.detach()) for name, weight in self._named.items())

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the named weights and buffers, detached, and sharded where the model is."""
        return [tensor.detach() for tensor in find_tensors(self.module, self._named, names)]

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Gathers one weight at a time and copies it to the CPU."""
        return ((name, whole(weight.detach()).cpu()) for name, weight in self._named.items())

    def weight_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of each weight, where they are."""
        return own_rows(self.named_weights(), self.ranks.rank)

    def optimizer_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of the optimizer state; parked tensors are copied back to the device."""
        state = optimizer_state(self._named, self._optimizers)
        return own_rows(((name, self._parking.present(value)) for name, value in state), self.ranks.rank)

    @property
    def rows_stay(self) -> bool:
        """Implements `Backend.rows_stay`: parked state is read by way of the device."""
        return not self._parking.is_parked

    def park(self) -> int:
        """Moves this rank's optimizer state to host memory."""
        self.before_change()
        return self._parking.park(self._optimizers)

    def unpark(self) -> int:
        """Moves this rank's optimizer state back to the device."""
        self.before_change()
        return self._parking.unpark()

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Copies the whole tensors of a checkpoint into weights and optimizers."""
        check_weights(self._named, weights)
        self.before_change()
        self._parking.forget()
        set_weights(self._named, weights)
        load_state(self._named, self._optimizers, optimizer, leads=self.ranks.rank == 0)


def whole(tensor: Tensor) -> Tensor:
    """Gathers a sharded tensor; another one is returned as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
