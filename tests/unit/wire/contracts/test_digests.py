"""Digests name their algorithm; what an older version of Headrace wrote has no name and stays comparable."""

import torch

from headrace.wire.contracts.digests import algorithm_of, same_weights, value_of
from headrace.wire.weights import bucket_digest, make_snapshot

BYTES = torch.arange(256, dtype=torch.int32).to(torch.uint8)
OLD_BUCKET = "f1f8a93f50849ac39408a4433b952d71"
OLD_WEIGHTS = "45541427234efc3499b982713d3955f7a73553fe38bc40a808b5ca33acf8f0e3"
"""What Headrace wrote of `BYTES`, and of it as the float32 `w`, before digests had names."""


def test_digests_of_unlike_algorithms_are_never_compared() -> None:
    assert same_weights("xxh3:aa", "xxh3:aa") is True and same_weights("xxh3:aa", "xxh3:ab") is False
    assert same_weights("xxh3:aa", "sgl64:aa") is None and same_weights("sgl64:aa", "xxh3:ab") is None
    assert same_weights("sgl64:aa", "sgl64:aa") is True


def test_a_digest_without_an_algorithm_is_compared_as_xxh3() -> None:
    assert same_weights("aa", "xxh3:aa") is True and same_weights("xxh3:aa", "bb") is False
    assert same_weights("aa", "sgl64:aa") is None
    assert (algorithm_of("aa"), value_of("aa"), algorithm_of("sgl64:aa"), value_of("sgl64:aa")) == (
        *("xxh3", "aa"),
        *("sgl64", "aa"),
    )


def test_weight_digests_of_old_run_directories_still_compare_equal() -> None:
    assert bucket_digest(BYTES) == f"xxh3:{OLD_BUCKET}"
    plan = make_snapshot([("w", BYTES.view(torch.float32))], dtype=torch.float32).plan
    assert same_weights(OLD_WEIGHTS, plan.weights_digest) is True
    other = make_snapshot([("w", BYTES.flip(0).contiguous().view(torch.float32))], dtype=torch.float32).plan
    assert same_weights(OLD_WEIGHTS, other.weights_digest) is False
