"""Rotary positions: the bits of transformers' own modules."""

from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from headrace.services.rollout.engines.torch.rope import rotation_table
from tests.rollout_models import CONFIGS

MODULES = {"llama": LlamaRotaryEmbedding, "qwen2": Qwen2RotaryEmbedding, "qwen3": Qwen3RotaryEmbedding}
TYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 3.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
}


@pytest.mark.parametrize("base", [1e4, 1e6])
@pytest.mark.parametrize("head_dim", [12, 128, None])
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("rope_type", TYPES)
def test_the_rotary_table_is_bit_equal_to_the_models_own_module(
    rope_type: str, kind: str, head_dim: int | None, base: float
) -> None:
    sizes: dict[str, Any] = {"hidden_size": 96, "num_attention_heads": 4, "max_position_embeddings": 5000}
    if head_dim is not None:
        sizes["head_dim"] = head_dim
    rope = {"rope_type": rope_type, "rope_theta": base} | TYPES[rope_type]
    config = CONFIGS[kind](rope_parameters=rope, **sizes)
    length = 1027
    cos, sin = MODULES[kind](config)(torch.zeros(1), torch.arange(length)[None])
    table = rotation_table(config, length, torch.device("cpu"))
    half = cos.shape[-1] // 2
    assert table.shape == (length, half)
    assert torch.equal(table.real, cos[0, :, :half]) and torch.equal(table.imag, sin[0, :, :half])
    assert torch.equal(cos[0, :, :half], cos[0, :, half:])
