"""How SGLang names the parameters that hold a checkpoint's tensors, several of them fused. Pure.

It keeps projections of one input in one parameter, one after the other: q, k, v; gate, up; DeepSeek's two
down-projections of attention; and the experts of a layer, gate and up of the first, of the second, ...
"""

import re
from collections.abc import Iterable, Mapping

from headrace.wire.contracts.digests import SGL64_MOST_BYTES

FUSED: Mapping[str, tuple[str, int, int]] = {
    "q_proj": ("qkv_proj", 0, 3),
    "k_proj": ("qkv_proj", 1, 3),
    "v_proj": ("qkv_proj", 2, 3),
    "q_a_proj": ("fused_qkv_a_proj_with_mqa", 0, 2),
    "kv_a_proj_with_mqa": ("fused_qkv_a_proj_with_mqa", 1, 2),
    "gate_proj": ("gate_up_proj", 0, 2),
    "up_proj": ("gate_up_proj", 1, 2),
}
"""Part -> (whole, place in it, number of parts)."""
EXPERT: Mapping[str, tuple[str, int, int]] = {
    "gate_proj": ("w13_weight", 0, 2),
    "w1": ("w13_weight", 0, 2),
    "up_proj": ("w13_weight", 1, 2),
    "w3": ("w13_weight", 1, 2),
    "down_proj": ("w2_weight", 0, 1),
    "w2": ("w2_weight", 0, 1),
}
"""Part of an expert -> (whole of all of them, place among the parts of one expert, number of these)."""
_PART = re.compile(r"^(?P<owner>.*\.(?:self_attn|mlp|shared_experts?)\.)(?P<part>\w+)\.(?P<kind>weight|bias)$")
_OF_EXPERT = re.compile(r"^(?P<owner>.*\.experts\.)(?P<expert>\d+)\.(?P<part>\w+)\.weight$")
_PADDING_BYTES = 16 * 2**20
"""More than padding the vocabulary, or the size of an MLP, adds to a parameter."""


def place(name: str) -> tuple[str, int, int]:
    """The parameter that holds the tensor, its place in it, and how many parts it has (0: as many as there are)."""
    match = _OF_EXPERT.match(name)
    if match is not None and match["part"] in EXPERT:
        whole, at, count = EXPERT[match["part"]]
        return match["owner"] + whole, int(match["expert"]) * count + at, 0
    match = _PART.match(name)
    if match is None or match["part"] not in FUSED:
        return name, 0, 1
    whole, at, count = FUSED[match["part"]]
    return f"{match['owner']}{whole}.{match['kind']}", at, count


def of_expert(name: str) -> bool:
    """It is the weight of one expert of several."""
    return _OF_EXPERT.match(name) is not None


def oversized(sizes: Iterable[tuple[str, int]], ranks: int = 1) -> list[str]:
    """Parameters too large for SGLang's checksum on a GPU, by the bytes of a checkpoint's tensors; sorted.

    SGLang 0.5.23's kernel counts 32-bit words in a signed 32-bit number (`kernels/ops/memory/gpu_tensor_hash.py`, 62
    and 73: `pid * TILE`): from 8 GiB on it reads in front of the tensor, foreign memory or none. So it must not be
    asked. Each rank holds its part of what is large. Experts that the checkpoint itself has fused are named by all
    that begins as they do: SGLang calls their parameters otherwise.
    """
    totals: dict[str, int] = {}
    for name, size in sizes:
        whole = place(name)[0]
        totals[whole] = totals.get(whole, 0) + size
    limit = (SGL64_MOST_BYTES - _PADDING_BYTES) * ranks
    return sorted({_pattern(name) for name, size in totals.items() if size > limit})


def _pattern(name: str) -> str:
    owner, experts, part = name.rpartition(".experts.")
    known = {whole for whole, _, _ in EXPERT.values()}
    return owner + experts if experts and part not in known else name
