"""Rotary positions as complex factors.

Hugging Face rotates component i with component i + head_dim/2. Here the two are adjacent in queries and keys (the rows
of their projections are permuted once, which leaves all products of queries and keys unchanged), so that a rotation is
one complex multiplication.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headrace.services.rollout.engines.torch.architecture import Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def rotation_table(config: "PreTrainedConfig", length: int, device: torch.device) -> Tensor:
    """complex64 [length, head_dim / 2]: cos + i sin, scaled, bit for bit those of the model's own rotary module.

    The module is not used: its family comes with kernels and compilers, a second to import in each replica.
    """
    frequencies, scaling = _frequencies(config)
    angles = torch.arange(length)[:, None].float() * frequencies
    return torch.complex(angles.cos() * scaling, angles.sin() * scaling).to(device)


def interleave(weight: Tensor, arch: Architecture) -> Tensor:
    """Permutes the rows of a query or key projection (or its bias, or a head norm) [heads * head_dim, ...]."""
    half = arch.head_dim // 2
    heads = weight.shape[0] // arch.head_dim
    return weight.view(heads, 2, half, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _frequencies(config: "PreTrainedConfig") -> tuple[Tensor, float]:
    """float32 [head_dim / 2], radians a position, and the factor of cos and sin.

    Source: transformers' modeling_rope_utils, and `compute_default_rope_parameters` of each family for "default".
    """
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies, scaling = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
        return frequencies, scaling
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width)), 1.0
