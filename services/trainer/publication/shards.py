"""Which part of a checkpoint's tensor one tensor-parallel rank of an SGLang server on a GPU holds. Pure.

Source: SGLang 0.5.23, `layers/linear.py` (528-583 columns, 710-896 gate and up, 1132-1158 and 1499-1503 heads,
1649-1711 rows), `layers/vocab_parallel_embedding.py` (273-289, 367, 422-447), `layers/moe/fused_moe_triton/layer.py`
(796-878, 914-967). A test compares it with these classes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_VOCABULARY = re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$")
_HEADS = re.compile(r"\.self_attn\.(?P<part>[qkv]|qkv)_proj\.(weight|bias)$")
_COLUMNS = re.compile(
    r"\.mlp\.(shared_experts?\.|experts\.\d+\.)?(?P<part>gate|up|gate_up)_proj\.(weight|bias)$|\.mlp\.c_fc\.(weight|bias)$"
)
_ROWS = re.compile(r"(\.self_attn\.o_proj|\.mlp\.(shared_experts?\.|experts\.\d+\.)?down_proj|\.mlp\.c_proj)\.weight$")
_WHOLE = re.compile(
    r"((^|[._])(\w*norm|layernorm)\.(weight|bias)|\.mlp\.(gate|shared_expert_gate)\.weight"
    r"|\.self_attn\.o_proj\.bias|\.mlp\.(down_proj|c_proj)\.bias)$"
)


@dataclass(frozen=True, slots=True)
class Split:
    """How a server divides its tensors."""

    ranks: int = 1
    heads: int = 0
    """Number of query heads."""
    kv_heads: int = 0
    whole_embedding: bool = False
    """Every rank has the whole vocabulary, unpadded (`models/gemma3_causal.py`, 532: an `nn.Embedding`)."""

    @staticmethod
    def of(config: Mapping[str, Any], ranks: int) -> "Split":
        """Reads the split from `config`, the model's config.json."""
        heads = int(config.get("num_attention_heads") or 0)
        return Split(
            ranks=ranks,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            whole_embedding=config.get("model_type") == "gemma3_text",
        )


def shard(name: str, tensor: Tensor, split: Split, rank: int) -> list[Tensor] | None:
    """Returns the pieces that the rank holds, in order; None if that is not known."""
    if _VOCABULARY.search(name):
        whole = split.whole_embedding and "embed_tokens" in name
        return [tensor] if whole else _rows(_padded_vocabulary(tensor, split.ranks), split.ranks, rank)
    if split.ranks == 1:
        return [tensor]
    if match := _HEADS.search(name):
        return _head_rows(match["part"], tensor, split, rank)
    if match := _COLUMNS.search(name):
        halves = tensor.chunk(2) if match["part"] == "gate_up" else (tensor,)
        return _joined([_rows(half, split.ranks, rank) for half in halves])
    if _ROWS.search(name):
        if tensor.shape[1] % split.ranks:
            return None
        return [tensor.chunk(split.ranks, 1)[rank]]
    return [tensor] if _WHOLE.search(name) and not _norm_of_heads(name, tensor) else None


def _norm_of_heads(name: str, tensor: Tensor) -> bool:
    """Whether each head has a norm of its own (Cohere): SGLang divides those by a separate rule."""
    return "norm" in name and tensor.dim() > 1


def _padded_vocabulary(tensor: Tensor, ranks: int) -> Tensor:
    """Pads to a multiple of 64 rows, or of 64 for each rank if that cannot be divided."""
    rows = -(-len(tensor) // 64) * 64
    if rows % ranks:
        rows = -(-len(tensor) // (64 * ranks)) * 64 * ranks
    if rows == len(tensor):
        return tensor
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def _rows(tensor: Tensor, ranks: int, rank: int) -> list[Tensor] | None:
    return None if len(tensor) % ranks else [tensor.chunk(ranks)[rank]]


def _head_rows(part: str, tensor: Tensor, split: Split, rank: int) -> list[Tensor] | None:
    if split.heads < 1 or split.heads % split.ranks:
        return None
    if part == "q":
        return _rows(tensor, split.ranks, rank)
    if part != "qkv":
        return _kv_rows(tensor, split, rank)
    head = len(tensor) // (split.heads + 2 * split.kv_heads)
    query, key, value = torch.split(tensor, [split.heads * head, split.kv_heads * head, split.kv_heads * head])
    keys, values = _kv_rows(key, split, rank), _kv_rows(value, split, rank)
    return _joined([_rows(query, split.ranks, rank), keys, values])


def _kv_rows(tensor: Tensor, split: Split, rank: int) -> list[Tensor] | None:
    """The rank's rows of keys or values.

    If these have fewer heads than there are ranks, several ranks hold the same.
    """
    if not split.kv_heads or len(tensor) % split.kv_heads:
        return None
    if split.kv_heads >= split.ranks:
        return _rows(tensor, split.ranks, rank) if split.kv_heads % split.ranks == 0 else None
    if split.ranks % split.kv_heads:
        return None
    return [tensor.chunk(split.kv_heads)[rank // (split.ranks // split.kv_heads)]]


def _joined(pieces: list[list[Tensor] | None]) -> list[Tensor] | None:
    known = [piece for piece in pieces if piece is not None]
    return [each for piece in known for each in piece] if len(known) == len(pieces) else None
