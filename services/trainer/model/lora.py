"""Low-rank adapters (LoRA, arXiv:2106.09685) in a model, through peft: only they are trained, and only they travel.

peft is imported where it is used: a run without adapters starts without it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer
    from transformers import PreTrainedModel

_ADAPTER = "default"
_PREFIX = "base_model.model."
"""Prefix of parameter names in an adapter's own file."""


def add_adapters(model: nn.Module, table: LoraTable) -> None:
    """Freezes the model and adds adapters to the targets; their products start at zero.

    Raises ConfigError if a target is in none of the model's modules, or is its head. No dropout: the engine's logprobs
    would differ.
    """
    from peft import inject_adapter_in_model

    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    missing = sorted(set(table.targets) - names)
    if missing:
        there = ", ".join(sorted(names))
        raise ConfigError(f"model.lora.targets: no {', '.join(missing)} in the model, it has {there}")
    _refuse_head(model, table)
    model.requires_grad_(False)
    inject_adapter_in_model(_config(table), model, adapter_name=_ADAPTER)
    for _, weight in adapter_parameters(model):
        # Beside 4-bit weights peft takes the dtype of their products.
        weight.data = weight.data.float()


def adapter_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The trained parameters, named as in an adapter's file."""
    for name, parameter in model.named_parameters():
        if f".{_ADAPTER}." in name:
            yield _PREFIX + name.replace(f".{_ADAPTER}.", "."), parameter


def adapted_modules(model: nn.Module) -> list[str]:
    """The modules with adapters, by their names in the model."""
    return [name for name, _ in _lora_layers(model)]


def adapter_config(table: LoraTable, base: str) -> str:
    """The content of `adapter_config.json`; empty without adapters."""
    if not table.rank:
        return ""
    values: dict[str, object] = _config(table).to_dict()
    values |= {"base_model_name_or_path": base, "inference_mode": True}
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in values.items()}
    return json.dumps(plain, indent=2, sort_keys=True, default=str)


def merged_state(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The whole model's weights with the adapters' products added, under the base model's names.

    `state` is the state dict of `model`, every tensor whole.
    """
    layers = dict(_lora_layers(model))
    merged: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if f".{_ADAPTER}." in name:
            continue
        owner, base, kind = name.rpartition(".base_layer.")
        plain = f"{owner}.{kind}" if base else name
        if base and kind == "weight":
            down, up = (state[f"{owner}.lora_{part}.{_ADAPTER}.weight"] for part in "AB")
            merged[plain] = tensor + (up @ down) * layers[owner].scaling[_ADAPTER]
        else:
            merged[plain] = tensor
    return merged


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Within it the model computes as if it had no adapters."""
    layers = [layer for _, layer in _lora_layers(model)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def _refuse_head(model: "PreTrainedModel", table: LoraTable) -> None:
    """Rejects adapters on the head: the trainer uses the head's own weight, so they would never learn."""
    head = model.get_output_embeddings()
    name = next((name for name, module in model.named_modules() if module is head), "").rpartition(".")[2]
    if name in table.targets:
        raise ConfigError(f"model.lora.targets: {name} is the head, which cannot have an adapter: leave it out")


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, "LoraLayer"]]:
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))


def _config(table: LoraTable) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=table.rank,
        lora_alpha=table.alpha,
        target_modules=list(table.targets),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
