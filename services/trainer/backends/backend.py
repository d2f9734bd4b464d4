"""The interface through which the training step uses model and optimizer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule


class Backend(Protocol):
    """Model and optimizer, wherever their shards are. Every rank calls every method, in the same order."""

    module: TrainedModule
    ranks: Ranks
    device: torch.device
    """Where the inputs of the forward pass must be."""
    overhead_tokens: int
    """What one more micro-batch costs, in tokens."""

    before_change: Callable[[], None]
    """Called before weights, optimizer state or their places in memory change: who copies them ends that."""

    @property
    def rows_stay(self) -> bool:
        """Whether `weight_rows` and `optimizer_rows` yield the state itself now, not copies of it on the device."""
        ...

    def __call__(self, *inputs: object) -> Any:
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
        """Discards the gradient accumulated so far."""
        ...

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Trained float32 master weights in the model's order, under their names in memory; shards are `DTensor`s."""
        ...

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the named weights and buffers, in the form of `named_weights`: what a publication is made of.

        Every rank must request the same names in the same order. Raises ValueError for a name that the model does not
        have.
        """
        ...

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the trained weights whole and on the CPU, one at a time. Every rank must consume all of them."""
        ...

    def whole_state(self) -> dict[str, Tensor]:
        """Returns what is exported: the whole model, adapters merged. On rank 0; empty on the others."""
        ...

    def weight_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of the trained weights; those of all ranks, in order, are the whole weights.

        A tensor that is not divided is rank 0's. Every rank must consume all of them.
        """
        ...

    def optimizer_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of the optimizer's state, by `weight name/key`, as `weight_rows` does."""
        ...

    def park(self) -> int:
        """Moves the optimizer's state of this rank from the device to the host; returns its bytes. Idempotent.

        Until `unpark`, everything but `apply` may be called.
        """
        ...

    def unpark(self) -> int:
        """Moves the optimizer's state back; returns its bytes. Idempotent."""
        ...

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Sets both to what a checkpoint holds, whole tensors given on every rank.

        Raises ValueError if the names or shapes are not the model's.
        """
        ...
