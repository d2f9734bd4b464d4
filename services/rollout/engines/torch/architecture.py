"""The model architecture, read from a Hugging Face config; unsupported models are refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SUPPORTED = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Supported types: those whose table does not depend on the current sequence length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A pre-norm decoder with grouped-query attention, rotary positions and a gated SiLU network."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    head_norm: bool
    """Queries and keys are normalized per head (Qwen3)."""
    tied: bool
    """The output matrix is the embedding."""
    max_positions: int


def read_architecture(config: "PreTrainedConfig") -> Architecture:
    """Reads a transformers config; raises ConfigError for a model this engine cannot decode."""
    kind = config.model_type
    _refuse_unless(kind in SUPPORTED, f"models of type {kind!r}; it knows {', '.join(SUPPORTED.values())}")
    layer_types = getattr(config, "layer_types", None) or []
    _refuse_unless("sliding_attention" not in layer_types, "sliding-window attention (use_sliding_window)")
    _refuse_unless(config.hidden_act == "silu", f"the activation {config.hidden_act!r}, only silu")
    rope = config.rope_parameters
    _refuse_unless(rope["rope_type"] in _ROPE_TYPES, f"rope type {rope['rope_type']!r}, only {', '.join(_ROPE_TYPES)}")
    _refuse_unless(rope.get("partial_rotary_factor", 1.0) == 1.0, "partial rotary embeddings")
    attention_bias = bool(getattr(config, "attention_bias", False))
    return Architecture(
        model_type=kind,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        qkv_bias=kind == "qwen2" or attention_bias,
        out_bias=kind != "qwen2" and attention_bias,
        mlp_bias=bool(getattr(config, "mlp_bias", False)),
        head_norm=kind == "qwen3",
        tied=bool(config.tie_word_embeddings),
        max_positions=config.max_position_embeddings,
    )


def load_config(folder: Path) -> object:
    """Loads the transformers config of a model folder, offline and without remote code; raises ConfigError."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"model.path: {folder} has no readable config.json: {error}") from error


def _refuse_unless(known: bool, what: str) -> None:
    if not known:
        raise ConfigError(f"model.path: the torch engine does not decode {what}")
