"""What the trainer says of `model.path`, whatever version it is at."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.model_folder import folder_checksums
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.wire.errors import ContractError
from headrace.wire.weights import snapshot_groups, tensors_of
from tests.families import tiny_family

LAYER = "model.layers.0.self_attn"


def published(model: Any, dtype: torch.dtype) -> Any:
    backend = SingleDevice(Policy(model, forward_dtype=dtype))
    return snapshot_groups(weight_groups(backend, dtype), bucket_bytes=4096)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
@pytest.mark.parametrize(("dtype", "layout"), [(torch.float32, "sglang-sha256"), (torch.bfloat16, "sglang-device")])
def test_it_is_what_the_first_version_hashes_to_also_of_a_trainer_that_is_at_a_later_one(
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


def test_fused_parts_of_one_number_say_nothing_of_their_order_and_are_left_out(tmp_path: Path) -> None:
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


def test_a_tensor_that_the_folder_has_not_leaves_its_parameter_out(tmp_path: Path) -> None:
    model = tiny_family("qwen3")
    model.save_pretrained(tmp_path)
    plan = published(model, torch.float32).plan
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[f"{LAYER}.k_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    found = folder_checksums(tmp_path, plan, "sglang-sha256", {"model_type": "qwen3"})
    assert f"{LAYER}.qkv_proj.weight" not in found and f"{LAYER}.o_proj.weight" in found


def test_a_folder_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    model = tiny_family("qwen3")
    model.save_pretrained(tmp_path)
    plan = published(model, torch.float32).plan
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\0" * 64)
    with pytest.raises(ContractError, match="names of its tensors cannot be read"):
        folder_checksums(tmp_path, plan, "sglang-sha256", {"model_type": "qwen3"})
    names = [spec.name for bucket in plan.buckets for spec in bucket.tensors]
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ContractError, match=r"model\.path .*header"):
        folder_checksums(tmp_path, plan, "sglang-sha256", {"model_type": "qwen3"})
