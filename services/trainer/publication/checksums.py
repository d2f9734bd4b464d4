"""What an engine's own checksums of a version must be, computed from the snapshot.

`sglang-sha256`: the `/weights_checker` of an SGLang server on a CPU with one rank hashes each of its parameters as the
first 8 bytes of the sha256 of its bytes. It keeps projections of one input fused: q, k, v and gate, up, one behind the
other; and it pads with zeros: the vocabulary to a multiple of 64, the inner size of an MLP to one of 32. Formats that
cannot be computed here give nothing: then replicas are compared with each other.
"""

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor

_FUSED = {
    "self_attn.q_proj": ("self_attn.qkv_proj", 0, 3),
    "self_attn.k_proj": ("self_attn.qkv_proj", 1, 3),
    "self_attn.v_proj": ("self_attn.qkv_proj", 2, 3),
    "mlp.gate_proj": ("mlp.gate_up_proj", 0, 2),
    "mlp.up_proj": ("mlp.gate_up_proj", 1, 2),
}
"""Part -> (whole, place in it, number of parts)."""
_PADDED = (
    (re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$"), 0, 64),
    (re.compile(r"\.mlp\.(gate|up)_proj\.(weight|bias)$"), 0, 32),
    (re.compile(r"\.mlp\.down_proj\.weight$"), 1, 32),
)
"""Name, dimension, and what its size is rounded up to."""
_PART = re.compile(r"^(?P<layer>.*\.)(?P<part>(?:self_attn|mlp)\.\w+)(?P<kind>\.(?:weight|bias))$")


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
        if len(parts) == counts[name]
    }


def _place(name: str) -> tuple[str, int, int]:
    match = _PART.match(name)
    if match is None or match["part"] not in _FUSED:
        return name, 0, 1
    whole, place, count = _FUSED[match["part"]]
    return f"{match['layer']}{whole}{match['kind']}", place, count


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
