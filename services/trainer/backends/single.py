"""One device: the model whole, the optimizer on float32 master weights."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from headrace.services.trainer.backends.compilation import compile_layers
from headrace.services.trainer.backends.options import BackendOptions, overhead_tokens
from headrace.services.trainer.backends.parking import Parking
from headrace.services.trainer.backends.state import (
    check_weights,
    find_tensors,
    load_state,
    optimizer_state,
    set_weights,
)
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import OptimizerOptions, build_optimizers


class SingleDevice:
    """Implements `headrace.services.trainer.backends.backend.Backend` without shards, for one rank."""

    def __init__(
        self,
        module: TrainedModule,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        options: BackendOptions | None = None,
    ) -> None:
        """`options`, if given, replace AdamW's `betas`, `eps` and `weight_decay`."""
        made = OptimizerOptions(betas=betas, eps=eps, weight_decay=weight_decay)
        options = options if options is not None else BackendOptions(optimizer=made)
        self.module = module
        self.ranks = Ranks.alone()
        self.device = module.device
        self.overhead_tokens = overhead_tokens(self.device)
        if options.compiled:
            compile_layers(module)
        self._named = dict(module.named_weights())
        self._optimizers = build_optimizers(module, options.optimizer)
        self._parking = Parking(self.device)

    def __call__(self, *inputs: Any) -> Any:
        """Runs the module's forward pass."""
        return self.module(*inputs)

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Accumulates the gradient in each weight's `grad`."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """Clips the gradient and steps the optimizers, unless its norm is not finite."""
        limit = grad_clip if grad_clip > 0 else math.inf
        norm = float(nn.utils.clip_grad_norm_(self._named.values(), limit))
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
        """Yields the weights, detached."""
        return ((name, weight.detach()) for name, weight in self._named.items())

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the named weights and buffers, detached."""
        return [tensor.detach() for tensor in find_tensors(self.module, self._named, names)]

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Copies one weight at a time to the CPU."""
        return ((name, weight.detach().cpu()) for name, weight in self._named.items())

    def whole_state(self) -> dict[str, Tensor]:
        """Returns the module's own state dict, with adapters merged."""
        return self.module.whole_state()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Returns the optimizer state; parked tensors are copied back to the device."""
        state = optimizer_state(self._named, self._optimizers)
        return {name: self._parking.present(value) for name, value in state}

    def park(self) -> int:
        """Moves the optimizer state to host memory."""
        return self._parking.park(self._optimizers)

    def unpark(self) -> int:
        """Moves the optimizer state back to the device."""
        return self._parking.unpark()

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Copies a checkpoint's tensors into weights and optimizers."""
        check_weights(self._named, weights)
        self._parking.forget()
        set_weights(self._named, weights)
        load_state(self._named, self._optimizers, optimizer)
