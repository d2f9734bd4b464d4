"""Which of SGLang's parameters hold a checkpoint's tensors, and which of them are too large for its checksum."""

import pytest

from headrace.wire.contracts.fused_names import oversized

GIB = 2**30
EXPERTS = "model.layers.3.mlp.experts"


def experts(count: int, size: int) -> list[tuple[str, int]]:
    parts = ("gate_proj", "up_proj", "down_proj")
    return [(f"{EXPERTS}.{number}.{part}.weight", size) for number in range(count) for part in parts]


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
def test_oversized_tensors_are_named_as_in_sglang(sizes: list[tuple[str, int]], ranks: int, found: list[str]) -> None:
    assert oversized(sizes, ranks) == found
