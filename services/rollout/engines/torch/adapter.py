"""Low-rank adapters for the embedded engine: merged into the base model's weights at installation."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headrace.wire.errors import ConfigError, ContractError

_FACTOR = re.compile(r"^base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight$")


def load_base(folder: Path) -> dict[str, Tensor]:
    """Loads the weights of a model folder; raises ConfigError if they cannot be read."""
    files = sorted(folder.glob("*.safetensors"))
    try:
        found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"model.path: the weights in {folder} cannot be read: {error}") from error
    if not found:
        raise ConfigError(f"model.path: there are no safetensors in {folder}, and adapters need their base model")
    return found


def merge(base: Mapping[str, Tensor], adapter: Mapping[str, Tensor], config: str) -> Iterator[tuple[str, Tensor]]:
    """The base weights plus `alpha / rank * B @ A` (arXiv:2106.09685, eq. 3); float32 where the adapter applies.

    Raises ContractError (`bad_weights`) for an adapter that does not fit.
    """
    scale = _scale(config)
    factors: dict[str, dict[str, Tensor]] = {}
    for name, tensor in adapter.items():
        match = _FACTOR.match(name)
        if match is None or f"{match['module']}.weight" not in base:
            raise ContractError("bad_weights", f"{name} is no factor of an adapter of this model")
        factors.setdefault(f"{match['module']}.weight", {})[match["side"]] = tensor.float()
    for name, weight in base.items():
        pair = factors.get(name)
        if pair is None:
            yield name, weight
        elif _fits(pair, weight):
            yield name, weight.float() + scale * (pair["B"] @ pair["A"])
        else:
            raise ContractError("bad_weights", f"the adapter of {name} lacks a factor, or has one of another shape")


def _fits(pair: Mapping[str, Tensor], weight: Tensor) -> bool:
    if pair.keys() != {"A", "B"} or pair["A"].shape[0] != pair["B"].shape[1]:
        return False
    return (pair["B"].shape[0], pair["A"].shape[1]) == tuple(weight.shape)


def _scale(config: str) -> float:
    try:
        values = json.loads(config)
        return float(values["lora_alpha"]) / int(values["r"])
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ContractError("bad_plan", f"the plan's adapter_config cannot be used: {error!r}") from error
