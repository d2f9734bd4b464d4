"""What a tensor-parallel rank holds, where SGLang's own classes cannot be asked: odd sizes, and what is not known."""

import pytest
import torch

from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.shards import Split, shard
from tests.sglang_hash import sglang_gpu_hash

LAYER = "model.layers.0"
CONFIG = {"model_type": "qwen3", "num_attention_heads": 6, "num_key_value_heads": 2}


def of(name: str, tensor: torch.Tensor, ranks: int, config: dict[str, object] = CONFIG) -> list[torch.Tensor] | None:
    """All ranks' pieces; None where one is not known."""
    found = [shard(name, tensor, Split.of(config, ranks), rank) for rank in range(ranks)]
    return None if any(each is None for each in found) else [torch.cat(each or []) for each in found]


@pytest.mark.parametrize(("rows", "ranks", "padded"), [(101, 1, 128), (101, 4, 128), (128, 3, 192), (101, 3, 192)])
def test_a_vocabulary_is_padded_so_that_ranks_can_divide_it(rows: int, ranks: int, padded: int) -> None:
    tensor = torch.randn(rows, 4)
    found = of("model.embed_tokens.weight", tensor, ranks)
    assert found is not None and {len(each) for each in found} == {padded // ranks}
    assert torch.equal(torch.cat(found), torch.cat([tensor, torch.zeros(padded - rows, 4)]))


def test_ranks_that_outnumber_the_key_heads_share_them() -> None:
    keys, queries = torch.randn(2 * 8, 4), torch.randn(6 * 8, 4)
    two = of(f"{LAYER}.self_attn.k_proj.weight", keys, 2)
    six = of(f"{LAYER}.self_attn.k_proj.weight", keys, 6)
    assert two is not None and torch.equal(torch.cat(two), keys)
    assert (
        six is not None
        and [torch.equal(each, keys[8 * (rank // 3) :][:8]) for rank, each in enumerate(six)] == [True] * 6
    )
    found = of(f"{LAYER}.self_attn.q_proj.weight", queries, 6)
    assert found is not None and torch.equal(torch.cat(found), queries)
    # Three ranks cannot share two heads: SGLang does not start.
    assert of(f"{LAYER}.self_attn.k_proj.weight", keys, 3) is None
    assert of(f"{LAYER}.self_attn.q_proj.weight", queries, 4) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{LAYER}.self_attn.q_norm.weight",  # Of each head apart.
        f"{LAYER}.mlp.new_proj.weight",
        f"{LAYER}.linear_attn.conv1d.weight",
        f"{LAYER}.mlp.down_proj.weight",  # 5 columns.
    ],
)
def test_tensors_with_unknown_sharding_have_checksums_only_for_one_rank(name: str) -> None:
    tensor = torch.randn(4, 5)
    assert of(name, tensor, 2) is None
    assert engine_checksums([(name, tensor)], "sglang-device/2", CONFIG) == {}
    assert engine_checksums([(name, tensor)], "sglang-device", CONFIG) == {name: sglang_gpu_hash(tensor)}


def test_gate_and_up_of_each_expert_are_adjacent_on_each_rank() -> None:
    experts = [{part: torch.randn(8, 4) for part in ("gate_proj", "up_proj")} for _ in range(3)]
    owner = f"{LAYER}.mlp.experts"
    named = {f"{owner}.{n}.{part}.weight": each for n, one in enumerate(experts) for part, each in one.items()}
    config = CONFIG | {"model_type": "qwen3_moe"}
    found = engine_checksums(named.items(), "sglang-device+experts/2", config)
    for rank in range(2):
        held = torch.cat([one[part][4 * rank :][:4] for one in experts for part in ("gate_proj", "up_proj")])
        assert found[f"{rank}/{owner}.w13_weight"] == sglang_gpu_hash(held)
    assert len(found) == 2 and engine_checksums(named.items(), "sglang-device/2", config) == {}
