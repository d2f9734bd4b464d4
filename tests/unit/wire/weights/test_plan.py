"""The bucket plan: what goes in comes out, whatever shapes, dtypes and bucket sizes."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headrace.wire.errors import ContractError
from headrace.wire.weights import make_snapshot, tensors_of


def named_tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [(f"layer.{index}.weight", torch.randn(shape).to(dtype)) for index, shape in enumerate(shapes)]


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple), min_size=1, max_size=8),
    bucket_bytes=st.integers(1, 400),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_a_snapshot_gives_back_the_tensors_that_went_in(
    shapes: list[tuple[int, ...]], bucket_bytes: int, dtype: torch.dtype
) -> None:
    named = named_tensors(shapes)
    snapshot = make_snapshot(named, dtype=dtype, bucket_bytes=bucket_bytes)
    back = list(tensors_of(snapshot.plan, snapshot.buckets))
    assert [name for name, _ in back] == [name for name, _ in named]
    for (_, wanted), (_, got) in zip(named, back, strict=True):
        torch.testing.assert_close(got, wanted.to(dtype), rtol=0, atol=0)


def test_every_tensor_lies_on_a_boundary_of_its_dtype_and_no_bucket_is_larger_than_asked() -> None:
    snapshot = make_snapshot(named_tensors([(3,), (5, 7), (1,), (300,)]), dtype=torch.bfloat16, bucket_bytes=256)
    assert [len(bucket.tensors) for bucket in snapshot.plan.buckets] == [3, 1]
    for bucket, spec in zip(snapshot.buckets, snapshot.plan.buckets, strict=True):
        assert len(bucket) == spec.size_bytes
        assert all(tensor.offset % 2 == 0 for tensor in spec.tensors)
        ends = [tensor.offset + 2 * math.prod(tensor.shape) for tensor in spec.tensors]
        assert [tensor.offset for tensor in spec.tensors] == [0, *ends[:-1]]  # without gaps: SGLang cuts them so
        assert spec.size_bytes == ends[-1]


def test_tied_parameters_travel_once_under_the_first_name() -> None:
    embedding = nn.Embedding(5, 3)
    head = nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    named = [("embed.weight", embedding.weight), ("head.weight", head.weight)]
    snapshot = make_snapshot(named, dtype=torch.float32)
    assert [name for name, _ in tensors_of(snapshot.plan, snapshot.buckets)] == ["embed.weight"]


def test_tensors_that_are_made_one_after_the_other_at_one_address_all_travel() -> None:
    def gathered() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(6):
            yield f"weight.{number}", torch.full((1000,), float(number))

    first = make_snapshot(gathered(), dtype=torch.float32, bucket_bytes=4000)
    snapshot = make_snapshot(gathered(), dtype=torch.float32, bucket_bytes=4000, into=first.buckets)
    back = dict(tensors_of(snapshot.plan, snapshot.buckets))
    assert [float(back[f"weight.{number}"][0]) for number in range(6)] == [0, 1, 2, 3, 4, 5]


def test_a_snapshot_does_not_change_with_the_parameters_it_was_taken_of() -> None:
    weight = torch.ones(4)
    snapshot = make_snapshot([("w", weight)], dtype=torch.float32)
    weight.zero_()
    assert dict(tensors_of(snapshot.plan, snapshot.buckets))["w"].tolist() == [1, 1, 1, 1]


def test_equal_weights_have_equal_digests_and_one_bit_changes_both() -> None:
    named = named_tensors([(4, 4), (3,)])
    first = make_snapshot(named, dtype=torch.float32)
    again = make_snapshot([(name, tensor.clone()) for name, tensor in named], dtype=torch.float32)
    assert first.plan == again.plan
    named[1][1].view(torch.int32)[2] ^= 1
    changed = make_snapshot(named, dtype=torch.float32)
    assert changed.plan.buckets[0].digest != first.plan.buckets[0].digest
    assert changed.plan.weights_digest != first.plan.weights_digest


def test_a_plan_that_points_outside_its_bucket_is_refused() -> None:
    snapshot = make_snapshot(named_tensors([(4,)]), dtype=torch.float32)
    snapshot.plan.buckets[0].tensors[0].offset = 60
    with pytest.raises(ContractError, match="does not lie in"):
        list(tensors_of(snapshot.plan, snapshot.buckets))
