"""A tiny model of random weights of many families, made from configs of a common shape."""

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

COMMON = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {"state_size": 8, "conv_kernel": 4, "expand": 2}
MAMBA2 = {
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8}
FAMILIES = {
    "bamba": {**MAMBA2, "attn_layer_indices": [1]},
    "bloom": {"n_layer": 2, "n_head": 4},
    "cohere": {"logit_scale": 0.0625},
    "deepseek_v3": {
        **LATENT,
        **{"qk_nope_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    },
    "falcon_h1": {**MAMBA2, "mamba_d_ssm": 64},
    "gemma": {},
    "gemma2": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gpt_oss": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "granite": {},
    "granitemoehybrid": {
        **MAMBA2,
        **{"layer_types": ["mamba", "attention"], "shared_intermediate_size": 32, "position_embedding_type": "rope"},
    },
    "jamba": {
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "use_mamba_kernels": False,
    },
    "llama": {},
    "mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 16, **MAMBA},
    "minicpm3": {**LATENT, "qk_nope_head_dim": 8},
    "minimax": {"layer_types": ["linear_attention", "full_attention"], "block_size": 8},
    "mistral": {},
    "mixtral": {},
    "nanochat": {},
    "nemotron_h": {
        **{"layers_block_type": ["mamba", "attention"], "ssm_state_size": 8, "mamba_num_heads": 4},
        **{"mamba_head_dim": 16, "n_groups": 1, "chunk_size": 16, "expand": 2},
    },
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi": {},
    "phimoe": {},
    "qwen2": {},
    "qwen2_moe": {},
    "qwen3": {},
    "qwen3_5_text": DELTA,
    "qwen3_moe": {},
    "qwen3_next": {**DELTA, "num_experts": 4},
}
"""model_type -> what its config needs beside `COMMON`."""


def family(kind, **changes):
    """A model of the family, with weights large enough that logits differ; `changes` are of its config."""
    config = CONFIG_MAPPING[kind]
    known = set(config().to_dict()) | set(config.attribute_map)
    values = {key: value for key, value in COMMON.items() if key in known} | FAMILIES[kind] | changes
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**values), dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "conv" not in name:
                weight.normal_(0, 0.2)
    return model
