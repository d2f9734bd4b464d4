"""Compiles the decoder's layers with torch.compile: one program for all, as they differ only in their weights."""

from headrace.services.trainer.algorithms.products import slow_down
from headrace.services.trainer.model.model import TrainedModule


def compile_layers(module: TrainedModule) -> None:
    """Compiles every layer in place, on first use. The head is left out: it works in blocks of its own.

    Lengths are symbols from the first batch on. torch's default makes a program for the first batch's lengths and
    another for all others, whose sums differ in the last bits: a resumed run, whose first batch is another one, may end
    in other weights than an undisturbed one.
    """
    for layer in module.layers():
        slow_down(layer)
        layer.compile(dynamic=True)
