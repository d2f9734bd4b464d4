"""What an engine's own checksums of a version must be, computed from the snapshot.

The `/weights_checker` of an SGLang server hashes each of its parameters. Which tensors of the checkpoint one holds says
`wire/fused_names.py`. The vocabulary is padded to a multiple of 64 with zeros.

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

from wire.digests import SGL64_MOST_BYTES
from wire.fused_names import of_expert, place
from wire.weights.device_hash import device_hash

_VOCABULARY = ((re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$"), 0, 64),)
_PADDED_ON_CPU = (
    *_VOCABULARY,
    (re.compile(r"\.(mlp|shared_experts?)\.(gate|up)_proj\.(weight|bias)$"), 0, 32),
    (re.compile(r"\.(mlp|shared_experts?)\.down_proj\.weight$"), 1, 32),
    (re.compile(r"\.experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$"), 0, 32),
    (re.compile(r"\.experts\.\d+\.(down_proj|w2)\.weight$"), 1, 32),
)
"""Name, dimension, and what its size is rounded up to."""
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
        dense = ((name, tensor) for name, tensor in named if not of_expert(name))
        hashed = partial(device_hash, device=device)
        return _checksums(dense, DEVICE_FAMILIES[family], hashed, most_bytes=SGL64_MOST_BYTES)
    return {}


def _checksums(
    named: Iterable[tuple[str, Tensor]],
    padded: _Rules,
    hashed: Callable[[Sequence[Tensor]], str],
    *,
    most_bytes: int = 0,
) -> dict[str, str]:
    whole: dict[str, dict[int, Tensor]] = {}
    counts: dict[str, int] = {}
    for name, tensor in named:
        found, at, count = place(name)
        whole.setdefault(found, {})[at] = _padded(name, tensor, padded)
        counts[found] = count
    return {
        name: hashed([parts[at] for at in sorted(parts)])
        for name, parts in whole.items()
        if len(parts) == (counts[name] or max(parts) + 1) and not (0 < most_bytes < _size(parts.values()))
    }


def _size(parts: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in parts)


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
