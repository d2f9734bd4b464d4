"""Computes the size of a model from the headers of its safetensors files and its config.json alone."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.wire.rundir.model_files import read_header

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(.*)$")
_HEAD = re.compile(r"(^|\.)lm_head\.weight$")
_BLOCKWISE = 4096
"""bitsandbytes keeps the moments of a smaller tensor in float32 (`headrace.services.trainer.model.optimizers`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes that the memory plan is computed from, in parameters; tied ones count once."""

    parameters: int
    tensors: int
    layers: int
    layer: int
    """Parameters of the largest layer; those outside of layers (embedding, head, last norm) are in `outside`."""
    outside: int
    matrices: int
    """Parameters in the layers' matrices, for 4-bit weights and Muon; not experts, which transformers fuses."""
    small: int
    """Parameters in tensors of fewer than 4096 elements."""
    hidden: int
    queries: int
    """Width of all query heads; `keys`: of all key heads, and so of all value heads."""
    keys: int
    inner: int
    """Width of the MLP that one token passes; in a mixture the sum over its experts and the shared one."""
    vocabulary: int
    tied: bool
    head_norms: bool = False
    """Whether queries and keys are normalized before the attention."""
    context: int = 0
    """Longest sequence that it was made for; 0 = unknown."""
    projections: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name (`q_proj`) -> how many there are, and the sum of their input and output widths. For adapters."""

    @property
    def head(self) -> int:
        """Parameters of the head's matrix."""
        return self.vocabulary * self.hidden

    def adapters(self, rank: int, targets: tuple[str, ...]) -> tuple[int, int]:
        """Parameters and tensors of low-rank adapters (LoRA): A [rank, in] and B [out, rank] beside each target."""
        found = [self.projections[name] for name in targets if name in self.projections]
        return rank * sum(widths for _, widths in found), 2 * sum(count for count, _ in found)


def model_parameters(folder: Path) -> int:
    """Number of parameters; 0 if unknown (no safetensors, or no model yet)."""
    return sum(math.prod(shape) for shape in (_headers(folder) or {}).values())


def read_shape(folder: Path) -> ModelShape | None:
    """Shape of a Hugging Face model folder; None if unknown (no safetensors, or no model yet)."""
    shapes = _headers(folder)
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    if not shapes:
        return None
    text = config.get("text_config", config)
    tied = not any(map(_HEAD.search, shapes)) or bool(config.get("tie_word_embeddings", False))
    if tied:
        shapes = {name: shape for name, shape in shapes.items() if not _HEAD.search(name)}
    return shape_of(shapes, text, tied=tied)


def shape_of(shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any], *, tied: bool) -> ModelShape:
    """Shape of a model from the shapes of its tensors, tied ones once, and its (text) config. Pure."""
    layers: dict[int, int] = {}
    projections: dict[str, tuple[int, int]] = {}
    matrices = 0
    for name, shape in shapes.items():
        found = _LAYER.search(name)
        if found is None:
            continue
        layers[int(found[1])] = layers.get(int(found[1]), 0) + math.prod(shape)
        if len(shape) == 2 and found[2].endswith(".weight") and ".experts." not in name:
            matrices += math.prod(shape)
            module = found[2].split(".")[-2]
            count, widths = projections.get(module, (0, 0))
            projections[module] = (count + 1, widths + sum(shape))
    total = sum(math.prod(shape) for shape in shapes.values())
    heads = int(config.get("num_attention_heads") or 1)
    width = int(config.get("head_dim") or config["hidden_size"] // heads)
    return ModelShape(
        parameters=total,
        tensors=len(shapes),
        layers=len(layers),
        layer=max(layers.values(), default=0),
        outside=total - sum(layers.values()),
        matrices=matrices,
        small=sum(math.prod(shape) for shape in shapes.values() if math.prod(shape) < _BLOCKWISE),
        hidden=int(config["hidden_size"]),
        queries=heads * width,
        keys=int(config.get("num_key_value_heads") or heads) * width,
        inner=_inner(config),
        vocabulary=int(config["vocab_size"]),
        tied=tied,
        head_norms=any(".q_norm." in name for name in shapes),
        context=int(config.get("max_position_embeddings") or 0),
        projections=projections,
    )


def _inner(config: Mapping[str, Any]) -> int:
    """Width of the MLP; in a mixture of experts, of those that one token passes."""
    each, count = config.get("moe_intermediate_size"), config.get("num_experts_per_tok")
    if not count:
        return int(config.get("intermediate_size") or 4 * config["hidden_size"])
    each = each or config.get("intermediate_size") or config["hidden_size"]
    shared = config.get("shared_expert_intermediate_size") or each * int(config.get("n_shared_experts") or 0)
    return int(each * count + shared)


def _headers(folder: Path) -> dict[str, tuple[int, ...]] | None:
    """Shapes of all tensors by name; None if a file is not safetensors."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            found |= {name: tuple(entry["shape"]) for name, entry in read_header(path)[0].items()}
        except (OSError, ValueError):
            return None
    return found
