"""One device: the model whole, the optimizer on float32 master weights."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from services.trainer.backends.compilation import compile_layers
from services.trainer.backends.options import BackendOptions, overhead_tokens
from services.trainer.backends.parking import Parking
from services.trainer.backends.state import check_weights, find_tensors, load_state, optimizer_state, set_weights
from services.trainer.model import TrainedModule
from services.trainer.optimizers import OptimizerOptions, build_optimizers
from services.trainer.ranks import Ranks


class SingleDevice:
    """See `services.trainer.backends.backend.Backend`."""

    def __init__(
        self,
        module: TrainedModule,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        options: BackendOptions | None = None,
    ) -> None:
        """`options` go before the three of AdamW."""
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
        """See `Backend`."""
        return self.module(*inputs)

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """See `Backend`."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """See `Backend`."""
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
        """See `Backend`."""
        for weight in self._named.values():
            weight.grad = None

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `Backend`."""
        return ((name, weight.detach()) for name, weight in self._named.items())

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """See `Backend`."""
        return [tensor.detach() for tensor in find_tensors(self.module, self._named, names)]

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `Backend`."""
        return ((name, weight.detach().cpu()) for name, weight in self._named.items())

    def whole_state(self) -> dict[str, Tensor]:
        """See `Backend`."""
        return self.module.whole_state()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """See `Backend`."""
        state = optimizer_state(self._named, self._optimizers)
        return {name: self._parking.present(value) for name, value in state}

    def park(self) -> int:
        """See `Backend`."""
        return self._parking.park(self._optimizers)

    def unpark(self) -> int:
        """See `Backend`."""
        return self._parking.unpark()

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """See `Backend`."""
        check_weights(self._named, weights)
        self._parking.forget()
        set_weights(self._named, weights)
        load_state(self._named, self._optimizers, optimizer)
