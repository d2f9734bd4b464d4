"""The model's weights in the form that the forward pass needs: fused, permuted, packed. Names are Hugging Face's."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.services.rollout.engines.torch.architecture import Architecture
from headrace.services.rollout.engines.torch.linear import Linear, WideLinear
from headrace.services.rollout.engines.torch.rope import interleave
from headrace.wire.errors import ContractError

_EMBED = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
_NORM = "model.norm.weight"


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer."""

    attention_norm: Tensor
    """[hidden]"""
    qkv: Linear
    head_norm: Tensor | None
    """[heads + kv_heads, head_dim]: for the queries, then for the keys."""
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All weights of one version; replaced as a whole, so that no forward pass mixes versions."""

    embedding: Tensor
    """[vocab, hidden]"""
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear | WideLinear


def weight_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Shapes of all parameters by Hugging Face name; the output matrix only if it is not tied."""
    shapes: dict[str, tuple[int, ...]] = {_EMBED: (arch.vocab, arch.hidden), _NORM: (arch.hidden,)}
    if not arch.tied:
        shapes[_HEAD] = (arch.vocab, arch.hidden)
    for index in range(arch.layers):
        for name, shape in _layer_shapes(arch).items():
            shapes[f"model.layers.{index}.{name}"] = shape
    return shapes


def _layer_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    q, kv = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (arch.hidden,),
        "post_attention_layernorm.weight": (arch.hidden,),
    }
    linears = {
        "self_attn.q_proj": (q, arch.hidden, arch.qkv_bias),
        "self_attn.k_proj": (kv, arch.hidden, arch.qkv_bias),
        "self_attn.v_proj": (kv, arch.hidden, arch.qkv_bias),
        "self_attn.o_proj": (arch.hidden, q, arch.out_bias),
        "mlp.gate_proj": (arch.intermediate, arch.hidden, arch.mlp_bias),
        "mlp.up_proj": (arch.intermediate, arch.hidden, arch.mlp_bias),
        "mlp.down_proj": (arch.hidden, arch.intermediate, arch.mlp_bias),
    }
    for name, (rows, columns, bias) in linears.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)
    if arch.head_norm:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = (arch.head_dim,)
    return shapes


def build_weights(
    arch: Architecture,
    named: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    device: torch.device,
    fp32_head: bool = False,
) -> ModelWeights:
    """Casts, fuses and packs; raises ContractError (`bad_weights`) for missing, unknown or misshapen parameters.

    `fp32_head`: the head's products are float32, but its weights are still rounded to `dtype`.
    """
    _check(arch, named)

    def take(name: str) -> Tensor:
        # Always copies: the source may be a receive buffer that is reused.
        return named[name].to(device=device, dtype=dtype, copy=True)

    embedding = take(_EMBED)
    head = embedding if arch.tied else take(_HEAD)
    layers = tuple(_layer(arch, index, named, dtype, device) for index in range(arch.layers))
    return ModelWeights(embedding=embedding, layers=layers, norm=take(_NORM), head=_head(head, fp32_head))


def _head(weight: Tensor, fp32_head: bool) -> Linear | WideLinear:
    return WideLinear(weight) if fp32_head and weight.dtype != torch.float32 else Linear(weight, None)


def _layer(
    arch: Architecture, index: int, named: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device
) -> Layer:
    def take(name: str) -> Tensor:
        return named[f"model.layers.{index}.{name}"].to(device=device, dtype=dtype, copy=True)

    def fused(names: list[str], kind: str, permuted: int = 0) -> Tensor:
        # `cat` copies, even a single part.
        parts = [named[f"model.layers.{index}.{name}.{kind}"].to(device=device, dtype=dtype) for name in names]
        return torch.cat([interleave(part, arch) if place < permuted else part for place, part in enumerate(parts)])

    def linear(names: list[str], bias: bool, permuted: int = 0) -> Linear:
        return Linear(fused(names, "weight", permuted), fused(names, "bias", permuted) if bias else None)

    head_norm = None
    if arch.head_norm:
        q_norm = interleave(take("self_attn.q_norm.weight"), arch).expand(arch.heads, -1)
        k_norm = interleave(take("self_attn.k_norm.weight"), arch).expand(arch.kv_heads, -1)
        head_norm = torch.cat([q_norm, k_norm])
    return Layer(
        attention_norm=take("input_layernorm.weight"),
        qkv=linear([f"self_attn.{part}_proj" for part in "qkv"], arch.qkv_bias, permuted=2),
        head_norm=head_norm,
        out=linear(["self_attn.o_proj"], arch.out_bias),
        mlp_norm=take("post_attention_layernorm.weight"),
        gate_up=linear(["mlp.gate_proj", "mlp.up_proj"], arch.mlp_bias),
        down=linear(["mlp.down_proj"], arch.mlp_bias),
    )


def _check(arch: Architecture, named: Mapping[str, Tensor]) -> None:
    shapes = weight_shapes(arch)
    missing = sorted(shapes.keys() - named.keys())
    # A tied output matrix may be included under its own name: it equals the embedding.
    unknown = sorted(named.keys() - shapes.keys() - ({_HEAD} if arch.tied else set()))
    if missing or unknown:
        raise ContractError("bad_weights", f"parameters missing: {missing[:5]}, unknown: {unknown[:5]}")
    for name, shape in shapes.items():
        if tuple(named[name].shape) != shape:
            raise ContractError("bad_weights", f"{name} is {tuple(named[name].shape)}, the model has {shape}")
