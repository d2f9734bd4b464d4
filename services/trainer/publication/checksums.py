"""What an engine's own checksums of a version must be, computed from the snapshot.

The `/weights_checker` of an SGLang server with one rank hashes each of its parameters. It keeps projections of one
input fused, one behind the other: q, k, v; gate, up; DeepSeek's two down-projections of attention; and the experts of a
layer, gate and up of the first, of the second, ... And it pads the vocabulary to a multiple of 64 with zeros.

- `sglang-sha256`, on a CPU: the first 8 bytes of the sha256; the inner size of an MLP or expert is padded, too, to a
  multiple of 32.
- `sglang-device`, on a GPU: `device_hash`; nothing else is padded. Only for `DEVICE_FAMILIES`, which a test holds
  against SGLang's own model classes. Experts are left out: how they lie in memory depends on the kernels that the
  server chooses (SGLang 0.5.23, `layers/quantization/unquant.py`, 792-806 and 894-972).

What cannot be computed here is left out: there replicas are compared with each other.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from wire.weights.device_hash import device_hash

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
_VOCABULARY = ((re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$"), 0, 64),)
_PADDED_ON_CPU = (
    *_VOCABULARY,
    (re.compile(r"\.(mlp|shared_experts?)\.(gate|up)_proj\.(weight|bias)$"), 0, 32),
    (re.compile(r"\.(mlp|shared_experts?)\.down_proj\.weight$"), 1, 32),
    (re.compile(r"\.experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$"), 0, 32),
    (re.compile(r"\.experts\.\d+\.(down_proj|w2)\.weight$"), 1, 32),
)
"""Name, dimension, and what its size is rounded up to."""
_PART = re.compile(r"^(?P<owner>.*\.(?:self_attn|mlp|shared_experts?)\.)(?P<part>\w+)\.(?P<kind>weight|bias)$")
_OF_EXPERT = re.compile(r"^(?P<owner>.*\.experts\.)(?P<expert>\d+)\.(?P<part>\w+)\.weight$")


DEVICE_FAMILIES = {
    **dict.fromkeys(("cohere", "glm4", "granite", "llama", "mistral", "olmo2"), _VOCABULARY),
    **dict.fromkeys(("phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "starcoder2"), _VOCABULARY),
    "gemma3_text": (),
}
"""`model_type` of a config -> what is padded on a GPU."""

_Rules = Sequence[tuple[re.Pattern[str], int, int]]


def engine_checksums(
    named: Iterable[tuple[str, Tensor]], layout: str, family: str = "", device: torch.device | None = None
) -> dict[str, str]:
    """The engine's tensor name -> hash; empty for what only the engine can compute.

    `family` is the model's `model_type`. Hashes of a GPU are computed on `device`, or where the tensors lie.
    """
    if layout == "sglang-sha256":
        return _checksums(named, _PADDED_ON_CPU, _sha256)
    if layout == "sglang-device" and family in DEVICE_FAMILIES:
        dense = ((name, tensor) for name, tensor in named if _OF_EXPERT.match(name) is None)
        return _checksums(dense, DEVICE_FAMILIES[family], partial(device_hash, device=device))
    return {}


def _checksums(
    named: Iterable[tuple[str, Tensor]], padded: _Rules, hashed: Callable[[Sequence[Tensor]], str]
) -> dict[str, str]:
    whole: dict[str, dict[int, Tensor]] = {}
    counts: dict[str, int] = {}
    for name, tensor in named:
        found, place, count = _place(name)
        whole.setdefault(found, {})[place] = _padded(name, tensor, padded)
        counts[found] = count
    return {
        name: hashed([parts[place] for place in sorted(parts)])
        for name, parts in whole.items()
        if len(parts) == (counts[name] or max(parts) + 1)
    }


def parameter_of(name: str) -> str:
    """The engine's parameter that holds the tensor, alone or with others."""
    return _place(name)[0]


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


def _padded(name: str, tensor: Tensor, rules: _Rules) -> Tensor:
    for pattern, dim, multiple in rules:
        if pattern.search(name) and (extra := -tensor.shape[dim] % multiple):
            shape = list(tensor.shape)
            shape[dim] = extra
            return torch.cat([tensor, tensor.new_zeros(shape)], dim)
    return tensor


def _sha256(parts: Sequence[Tensor]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part.contiguous().view(-1).view(torch.uint8).cpu().numpy().data)
    return state.hexdigest()[:16]
