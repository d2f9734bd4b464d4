"""What an engine's own checksums of a version must be, computed from the snapshot.

`sglang-sha256`: the `/weights_checker` of an SGLang server on a CPU with one rank hashes each of its parameters as the
first 8 bytes of the sha256 of its bytes. It keeps projections of one input fused, one behind the other: q, k, v; gate,
up; DeepSeek's two down-projections of attention; and the experts of a layer, gate and up of the first, of the second,
... And it pads with zeros: the vocabulary to a multiple of 64, the inner size of an MLP or expert to one of 32. Formats
that cannot be computed here give nothing: then replicas are compared with each other.
"""

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor

_FUSED = {
    "q_proj": ("qkv_proj", 0, 3),
    "k_proj": ("qkv_proj", 1, 3),
    "v_proj": ("qkv_proj", 2, 3),
    "q_a_proj": ("fused_qkv_a_proj_with_mqa", 0, 2),
    "kv_a_proj_with_mqa": ("fused_qkv_a_proj_with_mqa", 1, 2),
    "gate_proj": ("gate_up_proj", 0, 2),
    "up_proj": ("gate_up_proj", 1, 2),
}
"""Part -> (whole, place in it, number of parts)."""
_EXPERT = {
    "gate_proj": ("w13_weight", 0, 2),
    "w1": ("w13_weight", 0, 2),
    "up_proj": ("w13_weight", 1, 2),
    "w3": ("w13_weight", 1, 2),
    "down_proj": ("w2_weight", 0, 1),
    "w2": ("w2_weight", 0, 1),
}
"""Part of an expert -> (whole of all of them, place among the parts of one expert, number of these)."""
_PADDED = (
    (re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$"), 0, 64),
    (re.compile(r"\.(mlp|shared_experts?)\.(gate|up)_proj\.(weight|bias)$"), 0, 32),
    (re.compile(r"\.(mlp|shared_experts?)\.down_proj\.weight$"), 1, 32),
    (re.compile(r"\.experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$"), 0, 32),
    (re.compile(r"\.experts\.\d+\.(down_proj|w2)\.weight$"), 1, 32),
)
"""Name, dimension, and what its size is rounded up to."""
_PART = re.compile(r"^(?P<owner>.*\.(?:self_attn|mlp|shared_experts?)\.)(?P<part>\w+)\.(?P<kind>weight|bias)$")
_OF_EXPERT = re.compile(r"^(?P<owner>.*\.experts\.)(?P<expert>\d+)\.(?P<part>\w+)\.weight$")


def engine_checksums(named: Iterable[tuple[str, Tensor]], layout: str) -> dict[str, str]:
    """The engine's tensor name -> hash; empty for a `layout` that only the engine can compute."""
    if layout != "sglang-sha256":
        return {}
    whole: dict[str, dict[int, Tensor]] = {}
    counts: dict[str, int] = {}
    for name, tensor in named:
        found, place, count = _place(name)
        whole.setdefault(found, {})[place] = _padded(name, tensor)
        counts[found] = count
    return {
        name: _hash(parts[place] for place in sorted(parts))
        for name, parts in whole.items()
        if len(parts) == (counts[name] or max(parts) + 1)
    }


def _place(name: str) -> tuple[str, int, int]:
    """The parameter that holds the tensor, its place in it, and how many parts it has (0: as many as there are)."""
    match = _OF_EXPERT.match(name)
    if match is not None and match["part"] in _EXPERT:
        whole, place, count = _EXPERT[match["part"]]
        return match["owner"] + whole, int(match["expert"]) * count + place, 0
    match = _PART.match(name)
    if match is None or match["part"] not in _FUSED:
        return name, 0, 1
    whole, place, count = _FUSED[match["part"]]
    return f"{match['owner']}{whole}.{match['kind']}", place, count


def _padded(name: str, tensor: Tensor) -> Tensor:
    for pattern, dim, multiple in _PADDED:
        if pattern.search(name) and (extra := -tensor.shape[dim] % multiple):
            shape = list(tensor.shape)
            shape[dim] = extra
            return torch.cat([tensor, tensor.new_zeros(shape)], dim)
    return tensor


def _hash(parts: Iterable[Tensor]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part.contiguous().view(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()[:16]
