"""What the trainer says of `model.path`, whatever version it is at."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.model_folder import folder_checksums
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.wire.weights import snapshot_groups, tensors_of
from tests.families import tiny_family

LAYER = "model.layers.0.self_attn"


def published(model: Any, dtype: torch.dtype) -> Any:
    backend = SingleDevice(Policy(model, forward_dtype=dtype))
    return snapshot_groups(weight_groups(backend, dtype), bucket_bytes=4096)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
@pytest.mark.parametrize(("dtype", "layout"), [(torch.float32, "sglang-sha256"), (torch.bfloat16, "sglang-device")])
def test_folder_checksums_equal_those_of_the_first_published_version(
    tmp_path: Path, kind: str, dtype: torch.dtype, layout: str
) -> None:
    model = tiny_family(kind, vocab_size=101)
    # Several files, and another dtype than the one that travels.
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    first = published(model, dtype)
    expected = engine_checksums(tensors_of(first.plan, first.buckets), layout, {"model_type": kind})
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.25)
    assert folder_checksums(tmp_path, published(model, dtype).plan, layout, {"model_type": kind}) == expected
    assert len(expected) > 10


def test_fused_parts_with_constant_values_are_left_out(tmp_path: Path) -> None:
    model = tiny_family("qwen2")
    with torch.no_grad():
        for layer in model.model.layers:
            for part in "qkv":
                getattr(layer.self_attn, f"{part}_proj").bias.zero_()
    model.save_pretrained(tmp_path)
    plan = published(model, torch.float32).plan
    found = folder_checksums(tmp_path, plan, "sglang-device", {"model_type": "qwen2"})
    assert f"{LAYER}.qkv_proj.weight" in found and f"{LAYER}.qkv_proj.bias" not in found
    # A norm is of one number as well, and has no order.
    assert "model.norm.weight" in found
