"""FLOPs of a step: equal to counts by hand, and to what torch counts while a real model trains."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config, Qwen3MoeConfig

from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.throughput.flops import ComputeShape, Weights, causal_pairs, training_flops
from headrace.wire.config.settings import LoraTable
from tests.unit.services.trainer.builders import tiny_folder
from tests.unit.services.trainer.families import FAMILIES, family


def shape_of(config):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return Policy(model, forward_dtype=torch.float32).compute


def test_a_dense_model_with_shared_keys_is_as_counted_by_hand():
    # Qwen2.5-0.5B: 24 layers of 14 query heads and 2 key heads of 64, MLP of 4864, tied embeddings of 151936.
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    # A layer: queries 896*896, keys and values 2*896*128, output 896*896, MLP 3*896*4864 = 14,909,440; 24 of them
    # 357,826,560. Head: 151936*896 = 136,134,656. A row of 1000 tokens, 600 of them scored:
    # 6*357,826,560*1000 = 2,146,959,360,000 and 6*136,134,656*600 = 490,084,761,600 and attention
    # 12*24*14*64 * 1000*1001/2 = 129,153,024,000.
    assert shape_of(config).body == Weights(trained=357_826_560)
    assert training_flops(shape_of(config), [(1000, 600)]) == 2_766_197_145_600
    assert training_flops(shape_of(config), [(1000, 600), (1000, 600)]) == 2 * 2_766_197_145_600


def test_a_mixture_counts_the_experts_that_a_token_passes():
    # Qwen3-30B-A3B: 48 layers, 32 query heads and 4 key heads of 128, 8 of 128 experts of 768.
    config = Qwen3MoeConfig(
        vocab_size=151936,
        hidden_size=2048,
        num_hidden_layers=48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        moe_intermediate_size=768,
        num_experts=128,
        num_experts_per_tok=8,
        tie_word_embeddings=False,
    )
    # A layer: 2*2048*4096 of queries and output, 2*2048*512 of keys and values, a router of 128*2048, and 8 experts of
    # 3*2048*768 = 18,874,368 + 262,144 + 37,748,736 = 56,885,248; 48 of them 2,730,491,904. Head: 311,164,928; with an
    # embedding of that size, which is looked up, they are the 3.35 B that its name calls A3B.
    shape = shape_of(config)
    assert (shape.body, shape.head) == (Weights(trained=2_730_491_904), Weights(trained=311_164_928))
    # 100 tokens, all scored: 6 * 3,041,656,832 * 100, and 12*48*32*128 * 5050 of attention.
    assert training_flops(shape, [(100, 100)]) == 1_824_994_099_200 + 11_914_444_800


def test_a_window_bounds_what_attention_counts():
    # Mistral-7B v0.1 in small: every layer sees 4096 tokens back. 2 layers of 4 heads of 16.
    config = MistralConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=4096,
    )
    (kind,) = shape_of(config).attention
    assert (kind.layers, kind.window) == (2, 4096)
    # 4097*4096/2 of the first 4096 tokens, then 4096 each: of 10,000 tokens 32,573,440 pairs; 12*2*4*16 FLOPs a pair.
    assert kind.training(10_000) == 1536 * 32_573_440
    assert kind.training(4096) == 1536 * 8_390_656


@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 70))
def test_attention_pairs_equal_those_allowed_by_the_mask(tokens, window, chunk):
    seen = [(q, k) for q in range(tokens) for k in range(q + 1)]
    assert causal_pairs(tokens) == len(seen)
    if window:
        assert causal_pairs(tokens, window=window) == sum(k > q - window for q, k in seen)
    if chunk:
        assert causal_pairs(tokens, chunk=chunk) == sum(k // chunk == q // chunk for q, k in seen)


def test_frozen_weights_beside_adapters_take_no_gradient(tmp_path):
    # Hidden 16, MLP 32, 2 heads and 1 key head of 8; vocabulary of 24. Adapters of rank 2 on queries and down_proj.
    lora = LoraTable(rank=2, alpha=8, targets=("q_proj", "down_proj"))
    policy = load_policy(tiny_folder(tmp_path / "model"), device="cpu", forward_dtype=torch.float32, lora=lora)
    body = 16 * 16 * 2 + 2 * 16 * 8 + 3 * 16 * 32
    adapters = 2 * (16 + 16) + 2 * (32 + 16)
    assert policy.compute.body == Weights(trained=adapters, frozen=body)
    assert policy.compute.head == Weights(frozen=24 * 16)
    attention = 12 * 2 * 8 * 55
    assert training_flops(policy.compute, [(10, 4)]) == (6 * adapters + 4 * body) * 10 + 4 * 24 * 16 * 4 + attention


RECURRENT = {
    *("bamba", "falcon_h1", "granitemoehybrid", "jamba", "mamba2", "minimax", "nemotron_h"),
    *("qwen3_5_text", "qwen3_next"),
}
"""Torch counts products of their states, too."""


def counted(policy, tokens, scored):
    """What torch counts of a forward and a backward pass over one row: products of matrices, whatever they are for."""
    ids = torch.randint(3, 40, (1, tokens), generator=torch.Generator().manual_seed(0))
    places = torch.arange(tokens - scored, tokens)
    with FlopCounterMode(display=False) as counter:
        scores = policy(ids, torch.zeros_like(places), places, ids[0, places], torch.ones(scored), scored)
        scores.logprobs.sum().backward()
    return counter.get_total_flops()


def whole_squares(shape: ComputeShape, tokens: int) -> int:
    """Attention as plain products compute it: also of the pairs that the mask hides."""
    return sum(6 * one.layers * one.heads * (one.key_width + one.value_width) for one in shape.attention) * tokens**2


@pytest.mark.parametrize("kind", sorted(FAMILIES.keys() - RECURRENT))
def test_counted_flops_equal_torchs_count_of_a_real_model(kind):
    # In float64 there is no oneDNN, whose products torch does not count; nor those of fused experts.
    policy = Policy(family(kind, attn_implementation="eager").train().double(), forward_dtype=torch.float64)
    policy.model.set_experts_implementation("eager")
    shape, tokens, scored = policy.compute, 23, 9
    # The head's 6: forward, again for the backward pass, and the gradient of its input; that of its weight is an
    # `addmm_`, which torch does not count.
    expected = shape.body.training * tokens + whole_squares(shape, tokens) + 6 * shape.head.trained * scored
    assert counted(policy, tokens, scored) == expected
