"""Which of SGLang's parameters hold a checkpoint's tensors, and which of them are too large for its checksum."""

import pytest

from headrace.wire.digests import SGL64_MOST_BYTES
from headrace.wire.fused_names import oversized, place

GIB = 2**30
EXPERTS = "model.layers.3.mlp.experts"


def experts(count: int, size: int) -> list[tuple[str, int]]:
    parts = ("gate_proj", "up_proj", "down_proj")
    return [(f"{EXPERTS}.{number}.{part}.weight", size) for number in range(count) for part in parts]


def test_the_limit_is_what_a_signed_number_of_words_can_count() -> None:
    assert SGL64_MOST_BYTES == 8 * GIB - 4


@pytest.mark.parametrize(
    ("sizes", "ranks", "found"),
    [
        ([("model.embed_tokens.weight", 2 * GIB)], 1, []),
        ([("model.embed_tokens.weight", 8 * GIB)], 1, ["model.embed_tokens.weight"]),
        # What padding brings over the limit.
        ([("model.embed_tokens.weight", 8 * GIB - 2**20)], 1, ["model.embed_tokens.weight"]),
        ([("model.embed_tokens.weight", 8 * GIB)], 2, []),
        # 9 GiB of gate and up, 4.5 of down.
        (experts(64, 9 * GIB // 128), 1, [f"{EXPERTS}.w13_weight"]),
        (experts(64, 9 * GIB // 64), 1, [f"{EXPERTS}.w13_weight", f"{EXPERTS}.w2_weight"]),
        (experts(64, 9 * GIB // 64), 4, []),
        # Fused by the checkpoint: SGLang has another name for it.
        ([(f"{EXPERTS}.gate_up_proj", 20 * GIB), (f"{EXPERTS}.down_proj", 10 * GIB)], 1, [f"{EXPERTS}."]),
    ],
)
def test_what_is_too_large_is_named_as_sglang_names_it(
    sizes: list[tuple[str, int]], ranks: int, found: list[str]
) -> None:
    assert oversized(sizes, ranks) == found


def test_one_layer_is_not_the_beginning_of_another() -> None:
    (name,) = oversized([("model.layers.1.mlp.down_proj.weight", 9 * GIB)])
    assert name not in "model.layers.11.mlp.down_proj.weight"


def test_a_tensor_that_is_not_fused_is_its_own_parameter() -> None:
    assert place("model.norm.weight") == ("model.norm.weight", 0, 1)
