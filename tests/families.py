"""Tiny models of the families whose checkpoints transformers converts, made from their configs alone."""

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

_MOST_PARAMETERS = 2_000_000

_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "sliding_window": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Experts.
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    # Latent attention.
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    # Linear attention and state spaces.
    "linear_num_heads": 2,
    "linear_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 8,
    "n_groups": 2,
    # Pictures.
    "image_size": 28,
    "patch_size": 14,
    "window_size": 2,
    "global_attn_indexes": [1],
    "mlp_dim": 48,
    "output_channels": 16,
}
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
_ONE_OF_EACH = ["linear_attention", "full_attention"]
_OWN: dict[str, dict[str, Any]] = {
    "beam": {"mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v3": {"head_dim": 8},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "flint": {"mlp_only_layers": [0]},
    "hunyuan_v1_moe": {"head_dim": 8},
    "kimi_linear": {"layer_types": _ONE_OF_EACH, "mlp_layer_types": ["dense", "sparse"]},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "full_attention"]},
    "longcat_flash": {"num_layers": 1, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "zero_expert_num": 2},
    "gemma3n_text": {
        "num_hidden_layers": 2,
        "intermediate_size": [48, 48],
        "layer_types": ["sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.0, 0.0],
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 96,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
    },
}
"""What the numbers above do not make small, or what a family's defaults leave unset."""


def converting_families() -> list[str]:
    """Types of causal language models (what the trainer loads) for which transformers has a conversion."""
    return sorted(
        kind
        for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
        if any(get_checkpoint_conversion_mapping(key) is not None for key in (kind, name))
    )


def tiny_config(kind: str, **more: Any) -> Any:
    """A config of this type with small numbers wherever it has them."""
    return _tiny(CONFIG_MAPPING[kind], _SMALL | _OWN.get(kind, {}) | more, own=set(_OWN.get(kind, {})) | set(more))


def tiny_family(kind: str, seed: int = 0, **more: Any) -> Any:
    """A model of this type; raises AssertionError if it is not small."""
    config = tiny_config(kind, **more)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    assert size <= _MOST_PARAMETERS, f"a {kind} of {size} parameters is not tiny"
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def _tiny(kind: Any, values: dict[str, Any], own: set[str]) -> Any:
    default = kind()
    there = default.to_dict()
    aliases = set(getattr(kind, "attribute_map", {}))
    used = {
        key: value
        for key, value in values.items()
        if key in own or key in aliases or (key in there and there[key] is not None)
    }
    for key in kind.sub_configs or {}:
        part = getattr(default, key, None)
        if part is not None:
            small = _SMALL | _VISION if "vision" in key else _SMALL
            used[key] = _tiny(type(part), small, set()).to_dict()
    return kind(**used)
