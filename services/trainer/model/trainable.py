"""Which weights of a model are trained: `model.trainable`. Frozen ones have neither gradients nor optimizer state."""

import re

from torch import nn
from transformers import PreTrainedModel

from headrace.wire.errors import ConfigError

_LAYERS = re.compile(r"layers (\d+)(-?)(\d*)")


def freeze_untrained(model: PreTrainedModel, layers: list[nn.Module], trainable: str) -> None:
    """Leaves a gradient to the weights that `trainable` names (see `ModelTable.trainable`); `layers`: the decoder's.

    Raises ConfigError for a part that the model lacks.
    """
    if trainable == "all":
        return
    chosen = [
        weight for part in trainable.split(",") for weight in _weights(model, layers, part.strip())
    ]  # before any of them is frozen
    model.requires_grad_(False)
    for weight in chosen:
        weight.requires_grad_(True)


def _weights(model: PreTrainedModel, layers: list[nn.Module], part: str) -> list[nn.Parameter]:
    match part:
        case "head":
            modules = [model.get_output_embeddings()]
        case "embeddings":
            modules = [model.get_input_embeddings()]
        case "norms":
            modules = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
        case _:
            modules = layers[_span(part, len(layers))]
    found = [weight for module in modules if module is not None for weight in module.parameters()]
    if not found:
        raise ConfigError(f"model.trainable: a model of {len(layers)} layers has no {part!r}, they count from 0")
    return found


def _span(part: str, count: int) -> slice:
    """`layers 4`, `layers 4-7` (7 included) or `layers 4-`."""
    found = _LAYERS.fullmatch(part)
    if found is None:
        raise ConfigError(f"model.trainable: {part!r} is none of 'layers A-B', 'norms', 'head' and 'embeddings'")
    first, dash, last = found.groups()
    stop = (int(last) if last else count - 1) if dash else int(first)
    if not int(first) <= stop < count:
        raise ConfigError(f"model.trainable: {part!r} in a model with the layers 0 to {count - 1}")
    return slice(int(first), stop + 1)
