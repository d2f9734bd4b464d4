"""What shares a bucket, and what comes out of a conversion on the way."""

import torch
from torch import Tensor

from headrace.wire.weights import WeightGroup, snapshot_groups, tensors_of


def names_of(groups: list[WeightGroup], bucket_bytes: int) -> list[list[str]]:
    snapshot = snapshot_groups(groups, bucket_bytes=bucket_bytes)
    return [[spec.name for spec in bucket.tensors] for bucket in snapshot.plan.buckets]


def plain(name: str, size: int = 10, dtype: torch.dtype = torch.float32, block: str = "") -> WeightGroup:
    tensor = torch.arange(size).to(dtype)
    return WeightGroup(sources=[tensor], published=[(name, (size,))], dtype=dtype, block=block)


def halves(tensors: list[Tensor]) -> list[Tensor]:
    (whole,) = tensors
    return list(whole.chunk(2))


def split(name: str, rows: int) -> WeightGroup:
    whole = torch.randn(2 * rows, 3)
    shapes = [(f"{name}.{part}", (rows, 3)) for part in range(2)]
    return WeightGroup(sources=[whole], published=shapes, dtype=torch.float32, convert=halves)


def test_a_group_is_converted_whole_and_never_cut_by_a_bucket() -> None:
    group = split("experts", 4)
    assert names_of([plain("a"), group, plain("b")], 40) == [["a"], ["experts.0", "experts.1"], ["b"]]
    snapshot = snapshot_groups([group], bucket_bytes=1)
    found = dict(tensors_of(snapshot.plan, snapshot.buckets))
    torch.testing.assert_close(torch.cat([found["experts.0"], found["experts.1"]]), group.sources[0], rtol=0, atol=0)


def test_a_block_of_any_size_stays_in_one_bucket() -> None:
    groups = [plain("a"), plain("q", block="0"), plain("k", block="0"), plain("q", block="1"), plain("b")]
    assert names_of(groups, 80) == [["a"], ["q", "k"], ["q", "b"]]
    assert names_of(groups, 1) == [["a"], ["q", "k"], ["q"], ["b"]]


def test_another_dtype_begins_another_bucket_and_is_kept() -> None:
    groups = [plain("a"), plain("bias", dtype=torch.float64), plain("table", dtype=torch.int64), plain("b")]
    snapshot = snapshot_groups(groups, bucket_bytes=4096)
    assert [bucket.dtype for bucket in snapshot.plan.buckets] == ["float32", "float64", "int64", "float32"]
    found = dict(tensors_of(snapshot.plan, snapshot.buckets))
    assert found["table"].dtype == torch.int64 and found["table"].tolist() == list(range(10))
