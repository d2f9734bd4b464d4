"""What an engine's own checksums of a version must be, computed from the snapshot.

The `/weights_checker` of an SGLang server hashes each of its parameters. `wire/contracts/fused_names.py` maps a
checkpoint's tensors to parameters. The vocabulary is padded to a multiple of 64 with zeros.

- `sglang-sha256`, on a CPU: the first 8 bytes of the sha256; the inner size of an MLP or expert is padded, too, to a
  multiple of 32.
- `sglang-device`, on a GPU: `device_hash`; nothing else is padded. `sglang-device/N` are those of N tensor-parallel
  ranks, `RANK/NAME`, divided as in `shards`. Only for `DEVICE_FAMILIES`, which a test holds against SGLang's own
  model classes. Experts are left out but with `sglang-device+experts`, of a server whose kernels take them as they
  are loaded.

What cannot be computed here is left out; for it, replicas are compared with each other.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from headrace.services.trainer.publication.shards import Split, shard
from headrace.wire.contracts.digests import SGL64_MOST_BYTES
from headrace.wire.contracts.fused_names import of_expert, place
from headrace.wire.weights.device_hash import device_hash

_PADDED_ON_CPU = (
    (re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$"), 0, 64),
    (re.compile(r"\.(mlp|shared_experts?)\.(gate|up)_proj\.(weight|bias)$"), 0, 32),
    (re.compile(r"\.(mlp|shared_experts?)\.down_proj\.weight$"), 1, 32),
    (re.compile(r"\.experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$"), 0, 32),
    (re.compile(r"\.experts\.\d+\.(down_proj|w2)\.weight$"), 1, 32),
)
"""Name, dimension, and what its size is rounded up to."""
DEVICE_FAMILIES = frozenset(
    {"cohere", "gemma3_text", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen2_moe"}
    | {"qwen3", "qwen3_moe", "starcoder2"}
)
"""`model_type` of a config."""
_DEVICE = re.compile(r"^sglang-device(?P<experts>\+experts)?(/(?P<ranks>\d+))?$")
_NOTHING: Mapping[str, object] = MappingProxyType({})


def engine_checksums(
    named: Iterable[tuple[str, Tensor]],
    layout: str,
    config: Mapping[str, object] = _NOTHING,
    device: torch.device | None = None,
) -> dict[str, str]:
    """Returns the engine's tensor name -> hash; empty if only the engine can compute it.

    `config` is the model's config.json. Hashes of a GPU layout are computed on `device`, or where the tensors lie.
    """
    if layout == "sglang-sha256":
        return {name: _sha256([_padded(part, each) for part, each in parts]) for name, parts in _wholes(named)}
    match = _DEVICE.match(layout)
    if match is None or config.get("model_type") not in DEVICE_FAMILIES:
        return {}
    chosen = ((name, tensor) for name, tensor in named if match["experts"] or not of_expert(name))
    return dict(_of_ranks(chosen, Split.of(config, int(match["ranks"] or 1)), device))


def _of_ranks(
    named: Iterable[tuple[str, Tensor]], split: Split, device: torch.device | None
) -> Iterator[tuple[str, str]]:
    for name, parts in _wholes(named):
        for rank in range(split.ranks):
            found = [shard(part, tensor, split, rank) for part, tensor in parts]
            pieces = [each for piece in found if piece is not None for each in piece]
            known = all(piece is not None for piece in found)
            if known and sum(each.numel() * each.element_size() for each in pieces) <= SGL64_MOST_BYTES:
                yield (name if split.ranks == 1 else f"{rank}/{name}"), device_hash(pieces, device)


def _wholes(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, list[tuple[str, Tensor]]]]:
    """Yields the engine's parameters that are complete: name, and their tensors in order."""
    wholes: dict[str, dict[int, tuple[str, Tensor]]] = {}
    counts: dict[str, int] = {}
    for name, tensor in named:
        found, at, count = place(name)
        wholes.setdefault(found, {})[at] = name, tensor
        counts[found] = count
    for name, parts in wholes.items():
        if len(parts) == (counts[name] or max(parts) + 1):
            yield name, [parts[at] for at in sorted(parts)]


def _padded(name: str, tensor: Tensor) -> Tensor:
    for pattern, dim, multiple in _PADDED_ON_CPU:
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
