"""Rotary positions as complex factors.

Hugging Face rotates component i with component i + head_dim/2. Here the two are adjacent in queries and keys (the rows
of their projections are permuted once, which leaves all products of queries and keys unchanged), so that a rotation is
one complex multiplication.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headrace.services.rollout.engines.torch.architecture import Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def rotation_table(config: "PreTrainedConfig", length: int, device: torch.device) -> Tensor:
    """complex64 [length, head_dim / 2]: cos + i sin of the model's own rotary module, including its scaling."""
    module = _rotary_module(config)
    cos, sin = module(torch.zeros(1), torch.arange(length)[None])
    half = cos.shape[-1] // 2
    return torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float()).to(device)


def interleave(weight: Tensor, arch: Architecture) -> Tensor:
    """Permutes the rows of a query or key projection (or its bias, or a head norm) [heads * head_dim, ...]."""
    half = arch.head_dim // 2
    heads = weight.shape[0] // arch.head_dim
    return weight.view(heads, 2, half, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _rotary_module(config: "PreTrainedConfig") -> Any:
    """The rotary module of the model; imports only its own family, since each takes a while to load."""
    match config.model_type:
        case "llama":
            from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

            return LlamaRotaryEmbedding(config)
        case "qwen2":
            from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

            return Qwen2RotaryEmbedding(config)
        case _:
            from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

            return Qwen3RotaryEmbedding(config)
