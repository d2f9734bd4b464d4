"""Digests name their algorithm; what an older version of Headrace wrote has no name and stays comparable."""

import pytest
import torch

from headrace.wire.digests import algorithm_of, same_weights, value_of
from headrace.wire.errors import ContractError
from headrace.wire.v1 import common_pb2
from headrace.wire.weights import bucket_digest, digest_as, make_snapshot
from headrace.wire.weights.device_hash import device_hash

BYTES = torch.arange(256, dtype=torch.int32).to(torch.uint8)
OLD_BUCKET = "f1f8a93f50849ac39408a4433b952d71"
OLD_WEIGHTS = "45541427234efc3499b982713d3955f7a73553fe38bc40a808b5ca33acf8f0e3"
"""What Headrace wrote of `BYTES`, and of it as the float32 `w`, before digests had names."""


def test_digests_of_unlike_algorithms_are_never_compared() -> None:
    assert same_weights("xxh3:aa", "xxh3:aa") is True and same_weights("xxh3:aa", "xxh3:ab") is False
    assert same_weights("xxh3:aa", "sgl64:aa") is None and same_weights("sgl64:aa", "xxh3:ab") is None
    assert same_weights("sgl64:aa", "sgl64:aa") is True


def test_one_without_a_name_is_compared_as_xxh3() -> None:
    assert same_weights("aa", "xxh3:aa") is True and same_weights("xxh3:aa", "bb") is False
    assert same_weights("aa", "sgl64:aa") is None
    assert (algorithm_of("aa"), value_of("aa"), algorithm_of("sgl64:aa"), value_of("sgl64:aa")) == (
        *("xxh3", "aa"),
        *("sgl64", "aa"),
    )


def test_what_an_old_run_directory_says_of_equal_weights_is_equal_still() -> None:
    assert bucket_digest(BYTES) == f"xxh3:{OLD_BUCKET}"
    plan = make_snapshot([("w", BYTES.view(torch.float32))], dtype=torch.float32).plan
    assert same_weights(OLD_WEIGHTS, plan.weights_digest) is True
    other = make_snapshot([("w", BYTES.flip(0).contiguous().view(torch.float32))], dtype=torch.float32).plan
    assert same_weights(OLD_WEIGHTS, other.weights_digest) is False


def test_a_receiver_digests_by_the_algorithm_that_the_plan_names_in_the_plans_form() -> None:
    assert digest_as(BYTES, "xxh3:what-it-should-be") == f"xxh3:{OLD_BUCKET}"
    assert digest_as(BYTES, "without-a-name") == OLD_BUCKET
    assert digest_as(BYTES, "sgl64:x") == f"sgl64:{device_hash([BYTES])}"
    with pytest.raises(ContractError, match=r"unknown_digest.*'blake9'.*one version of Headrace"):
        digest_as(BYTES, "blake9:x")


def test_the_weights_digest_has_the_name_of_its_buckets() -> None:
    named = [("w", torch.randn(300)), ("v", torch.randn(300))]
    plans = [make_snapshot(named, dtype=torch.float32, bucket_bytes=1200, algorithm=one).plan for one in ("", "sgl64")]
    assert [plan.weights_digest.partition(":")[0] for plan in plans] == ["xxh3", "sgl64"]
    assert [bucket.digest.partition(":")[0] for bucket in plans[1].buckets] == ["sgl64", "sgl64"]
    assert same_weights(plans[0].weights_digest, plans[1].weights_digest) is None
    named[1][1][7] += 1
    changed = make_snapshot(named, dtype=torch.float32, bucket_bytes=1200, algorithm="sgl64").plan
    assert same_weights(changed.weights_digest, plans[1].weights_digest) is False
    assert isinstance(changed, common_pb2.WeightPlan)


def test_a_bucket_too_large_for_sglangs_checksum_is_hashed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bucket_digest(BYTES, "sgl64")
    monkeypatch.setattr("headrace.wire.weights.digest.SGL64_MOST_BYTES", 100)
    pieces = bucket_digest(BYTES, "sgl64")
    assert pieces != whole and pieces == bucket_digest(BYTES.clone(), "sgl64")
    for place in (0, 99, 100, 255):
        other = BYTES.clone()
        other[place] ^= 1
        assert bucket_digest(other, "sgl64") != pieces
    # The order of the pieces counts.
    assert bucket_digest(torch.cat([BYTES[100:200], BYTES[:100], BYTES[200:]]), "sgl64") != pieces
