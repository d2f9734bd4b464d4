"""What SGLang's own checksums must be, against hashes made the slow and obvious way."""

import hashlib

import torch

from services.trainer.publication.checksums import engine_checksums

LAYER = "model.layers.0"


def sha(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def test_projections_of_one_input_are_hashed_as_one_whatever_their_order() -> None:
    parts = {kind: torch.randn(4, 8) for kind in "vqk"}
    named = [(f"{LAYER}.self_attn.{kind}_proj.weight", tensor) for kind, tensor in parts.items()]
    found = engine_checksums(named, "sglang-sha256")
    assert found == {f"{LAYER}.self_attn.qkv_proj.weight": sha(parts["q"], parts["k"], parts["v"])}


def test_a_whole_that_lacks_a_part_is_left_out() -> None:
    named = [(f"{LAYER}.mlp.gate_proj.weight", torch.randn(32, 8)), ("model.norm.weight", torch.randn(8))]
    assert list(engine_checksums(named, "sglang-sha256")) == ["model.norm.weight"]


def test_sizes_are_padded_with_zeros_as_the_engine_pads_them() -> None:
    embedding, gate, up, down = torch.randn(70, 8), torch.randn(40, 8), torch.randn(40, 8), torch.randn(8, 40)
    named = [
        ("model.embed_tokens.weight", embedding),
        (f"{LAYER}.mlp.gate_proj.weight", gate),
        (f"{LAYER}.mlp.up_proj.weight", up),
        (f"{LAYER}.mlp.down_proj.weight", down),
    ]
    rows, columns = torch.zeros(24, 8), torch.zeros(8, 24)
    assert engine_checksums(named, "sglang-sha256") == {
        "model.embed_tokens.weight": sha(embedding, torch.zeros(58, 8)),
        f"{LAYER}.mlp.gate_up_proj.weight": sha(gate, rows, up, rows),
        f"{LAYER}.mlp.down_proj.weight": sha(torch.cat([down, columns], 1)),
    }


def test_one_changed_element_changes_its_tensor_alone() -> None:
    named = {"a.weight": torch.randn(8, 8), "b.weight": torch.randn(8, 8)}
    before = engine_checksums(named.items(), "sglang-sha256")
    named["b.weight"][3, 3] += 0.5
    after = engine_checksums(named.items(), "sglang-sha256")
    assert before["a.weight"] == after["a.weight"] and before["b.weight"] != after["b.weight"]


def test_what_only_the_engine_can_compute_gives_nothing() -> None:
    assert engine_checksums([("a.weight", torch.randn(2, 2))], "sglang-device") == {}
