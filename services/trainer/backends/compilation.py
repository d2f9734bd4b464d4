"""The decoder's layers through torch.compile: one program for all of them, since they differ in nothing but weights."""

from services.trainer.algorithms.products import slow_down
from services.trainer.model import TrainedModule


def compile_layers(module: TrainedModule) -> None:
    """Compiles every layer in place, when it is first used. The head stays as it is: it works in blocks of its own."""
    for layer in module.layers():
        slow_down(layer)
        layer.compile()
