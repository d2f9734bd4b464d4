"""What SGLang's own checksums must be, against hashes made the slow and obvious way."""

import hashlib

import pytest
import torch

from headrace.services.trainer.publication.checksums import engine_checksums
from tests.sglang_hash import sglang_gpu_hash

LAYER = "model.layers.0"


def sha(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def test_fused_projections_are_hashed_together_in_any_order() -> None:
    parts = {kind: torch.randn(4, 8) for kind in "vqk"}
    named = [(f"{LAYER}.self_attn.{kind}_proj.weight", tensor) for kind, tensor in parts.items()]
    found = engine_checksums(named, "sglang-sha256")
    assert found == {f"{LAYER}.self_attn.qkv_proj.weight": sha(parts["q"], parts["k"], parts["v"])}


def test_checksums_pad_tensors_with_zeros_like_the_engine() -> None:
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


@pytest.mark.parametrize(
    ("gate", "up", "down"), [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")], ids=["qwen", "mixtral"]
)
def test_the_experts_of_a_layer_are_hashed_as_two_wholes_in_their_order(gate: str, up: str, down: str) -> None:
    """Eleven of them: in the order of their numbers, not of their names."""
    experts = [{gate: torch.randn(40, 8), up: torch.randn(40, 8), down: torch.randn(8, 40)} for _ in range(11)]
    owner = f"{LAYER}.mlp.experts"
    named = {f"{owner}.{n}.{part}.weight": each for n, one in enumerate(experts) for part, each in one.items()}
    rows, columns = torch.zeros(24, 8), torch.zeros(8, 24)
    expected = {
        f"{owner}.w13_weight": sha(*(part for one in experts for part in (one[gate], rows, one[up], rows))),
        f"{owner}.w2_weight": sha(*(torch.cat([one[down], columns], 1) for one in experts)),
    }
    assert engine_checksums(sorted(named.items()), "sglang-sha256") == expected
    del named[f"{owner}.3.{up}.weight"]
    assert list(engine_checksums(named.items(), "sglang-sha256")) == [f"{owner}.w2_weight"]


def test_on_a_gpu_the_vocabulary_alone_is_padded_and_the_hash_is_sglangs() -> None:
    embedding, gate, up, down = torch.randn(70, 8), torch.randn(40, 8), torch.randn(40, 8), torch.randn(8, 40)
    named = {
        "model.embed_tokens.weight": embedding,
        f"{LAYER}.mlp.gate_proj.weight": gate,
        f"{LAYER}.mlp.up_proj.weight": up,
        f"{LAYER}.mlp.down_proj.weight": down,
    }
    expected = {
        "model.embed_tokens.weight": sglang_gpu_hash(torch.cat([embedding, torch.zeros(58, 8)])),
        f"{LAYER}.mlp.gate_up_proj.weight": sglang_gpu_hash(torch.cat([gate, up])),
        f"{LAYER}.mlp.down_proj.weight": sglang_gpu_hash(down),
    }
    assert engine_checksums(named.items(), "sglang-device", {"model_type": "qwen3"}) == expected
    unpadded = engine_checksums(named.items(), "sglang-device", {"model_type": "gemma3_text"})
    assert unpadded["model.embed_tokens.weight"] == sglang_gpu_hash(embedding)


def test_experts_on_a_gpu_are_left_to_the_engines_to_compare() -> None:
    named = [(f"{LAYER}.mlp.experts.0.{part}.weight", torch.randn(8, 8)) for part in ("gate_proj", "up_proj", "w2")]
    named.append(("model.norm.weight", torch.randn(8)))
    assert list(engine_checksums(named, "sglang-device", {"model_type": "qwen3_moe"})) == ["model.norm.weight"]


@pytest.mark.parametrize(
    ("layout", "family"),
    [
        ("sglang-device", "gpt_oss"),
        ("sglang-device/2", ""),
        ("sglang-device/", "qwen3"),
        ("sglang-ranks", "qwen3"),
        ("", "qwen3"),
    ],
)
def test_layouts_known_only_to_the_engine_give_no_checksums(layout: str, family: str) -> None:
    assert engine_checksums([("a.weight", torch.randn(2, 2))], layout, {"model_type": family}) == {}
