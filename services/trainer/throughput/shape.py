"""Reads the sizes for FLOPs from a loaded model: its own matrices, and the attention that its config describes."""

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headrace.services.trainer.throughput.flops import Attention, ComputeShape, Weights

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_EXPERT = re.compile(r"(^|\.)experts\.\d+(\.|$)")
_EXPERTS_A_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk")
_WHOLE = ("full_attention", "attention", "hybrid")
_WINDOWED = ("sliding_attention", "hybrid_sliding")
_CHUNKED = "chunked_attention"


def compute_shape(body: nn.Module, head: Tensor, config: "PreTrainedConfig") -> ComputeShape:
    """Shape of a decoder, its head's weight and its text config; call it before a backend shards them.

    For layers of an unknown kind (linear, compressed or sparse attention) only the matrices count: too few FLOPs rather
    than too many.
    """
    in_head = _weights([(head.numel(), head)])
    return ComputeShape(body=_body(body, config), head=in_head, attention=_attention(body, config))


def _body(body: nn.Module, config: "PreTrainedConfig") -> Weights:
    found: list[tuple[int, Tensor]] = []
    # Where layers differ in their experts, too few are counted.
    chosen = 0 if _read(config, "is_heterogeneous") else int(_read(config, *_EXPERTS_A_TOKEN) or 0)
    experts = {name: len(module) for name, module in body.named_modules() if isinstance(module, nn.ModuleList)}
    for name, module in body.named_modules():
        if isinstance(module, nn.Embedding):
            continue
        match = _EXPERT.search(name)
        count = experts.get(name[: match.start()] + match[1] + "experts", 0) if match else 0
        for own, weight in module.named_parameters(recurse=False):
            size = _multiplied(module, own, weight, chosen)
            found.append((size * min(chosen, count) // count if count else size, weight))
    return _weights(found)


def _multiplied(module: nn.Module, name: str, weight: Tensor, chosen: int) -> int:
    """Weights of one parameter that a token is multiplied with."""
    if isinstance(module, nn.Linear):
        # The shape of 4-bit weights describes their storage.
        return module.in_features * module.out_features if name == "weight" else 0
    if isinstance(module, nn.Conv1d):
        return weight.numel() if name == "weight" else 0
    if weight.ndim == 3:
        # The experts of a layer, fused: [experts, out, in].
        return weight.numel() * min(chosen, len(weight)) // len(weight)
    return weight.numel() if weight.ndim == 2 and name == "weight" else 0


def _weights(found: list[tuple[int, Tensor]]) -> Weights:
    trained = sum(size for size, weight in found if weight.requires_grad)
    return Weights(trained, sum(size for size, _ in found) - trained)


def _attention(body: nn.Module, config: "PreTrainedConfig") -> tuple[Attention, ...]:
    if not any("attention" in type(module).__name__.lower() for module in body.modules()):
        return ()
    alike = Counter(kind for layer in range(int(config.num_hidden_layers)) if (kind := _layer(config, layer)))
    return tuple(replace(kind, layers=count) for kind, count in alike.items())


def _layer(config: "PreTrainedConfig", layer: int) -> Attention | None:
    """One layer; None for one whose attention is not counted."""
    kinds = _read(config, "layer_types", "layers_block_type")
    if _read(config, "is_heterogeneous"):
        config = config.per_layer_config[layer]
    window, chunk = int(_read(config, "sliding_window") or 0), int(_read(config, "attention_chunk_size") or 0)
    if kinds:
        kind = str(kinds[layer])
    else:
        # A window without kinds is every layer's (Mistral).
        kind = "sliding_attention" if window and _read(config, "use_sliding_window") is not False else "full_attention"
    if kind not in (*_WHOLE, *_WINDOWED, _CHUNKED):
        return None
    heads = int(config.num_attention_heads)
    key_width = value_width = int(_read(config, "head_dim") or config.hidden_size // heads)
    if _read(config, "kv_lora_rank"):
        # Multi-head latent attention (arXiv:2405.04434).
        key_width = int(config.qk_nope_head_dim) + int(config.qk_rope_head_dim)
        value_width = int(config.v_head_dim)
    return Attention(
        layers=1,
        heads=heads,
        key_width=key_width,
        value_width=value_width,
        window=window if kind in _WINDOWED else 0,
        chunk=chunk if kind == _CHUNKED else 0,
    )


def _read(config: "PreTrainedConfig", *names: str) -> Any:
    """The first of these names that the config has with a value; None without any."""
    return next((value for name in names if (value := getattr(config, name, None)) not in (None, [])), None)
