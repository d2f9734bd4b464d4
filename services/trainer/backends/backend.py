"""What the training step needs of whoever holds model and optimizer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from services.trainer.model import TrainedModule
from services.trainer.ranks import Ranks


class Backend(Protocol):
    """Model and optimizer, wherever their shards are. Every rank calls every method, in the same order."""

    module: TrainedModule
    ranks: Ranks
    device: torch.device
    """Where the inputs of the forward pass must be."""
    overhead_tokens: int
    """What one more micro-batch costs, in tokens."""

    def __call__(self, *inputs: Any) -> Any:
        """The module's forward pass."""
        ...

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Adds the gradient of one micro-batch's share of the loss; all shares of all ranks are summed.

        `last`: it is the step's last micro-batch.
        """
        ...

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """One optimizer step on the gathered gradient; returns its norm before clipping.

        A gradient that is not finite changes nothing. The gradient is empty afterwards.
        """
        ...

    def discard(self) -> None:
        """Forgets the gradient gathered so far."""
        ...

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Trained float32 master weights in the model's order, under their names in memory; shards are `DTensor`s."""
        ...

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """The weights and buffers of these names, as `named_weights` gives them: what a publication is made of.

        Every rank must ask for the same ones in the same order. Raises ValueError for a name that the model has not.
        """
        ...

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The same, whole and on the CPU, one at a time. Every rank must go through all of them."""
        ...

    def whole_state(self) -> dict[str, Tensor]:
        """What is exported: the whole model, adapters merged into it. On rank 0; empty on the others."""
        ...

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state, whole, by `weight name/key`. On rank 0; empty on the others."""
        ...

    def park(self) -> int:
        """Moves the optimizer's state from the device to the host, on this rank; returns its bytes. Idempotent.

        Until `unpark` only `apply` may not be called.
        """
        ...

    def unpark(self) -> int:
        """Moves it back; returns its bytes. Idempotent."""
        ...

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Sets both to what a checkpoint holds, whole tensors given on every rank.

        Raises ValueError if the names or shapes are not the model's.
        """
        ...
