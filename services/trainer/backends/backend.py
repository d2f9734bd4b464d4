"""What the training step needs of whoever holds model and optimizer."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from torch import Tensor

from services.trainer.model import Policy


class Backend(Protocol):
    """Model and optimizer, wherever their shards are."""

    policy: Policy
    overhead_tokens: int
    """What one more micro-batch costs, in tokens."""

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of one micro-batch's share of the loss."""
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
        """Whole float32 master weights in the order of publication."""
        ...

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state by `weight name/key`."""
        ...

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Sets both to what a checkpoint holds; raises ValueError if the names or shapes are not the model's."""
        ...
