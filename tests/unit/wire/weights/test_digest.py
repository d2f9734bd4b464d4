"""The digest of weights depends on names, dtypes, shapes and every bit; not on order or memory layout."""

import torch

from headrace.wire.weights import weights_sha256


def test_order_and_memory_layout_do_not_matter() -> None:
    matrix = torch.arange(6.0).view(2, 3)
    turned = matrix.t().contiguous().t()
    assert not turned.is_contiguous()
    other = torch.zeros(2, dtype=torch.bfloat16)
    assert weights_sha256([("a", matrix), ("b", other)]) == weights_sha256([("b", other), ("a", turned)])


def test_name_dtype_shape_and_one_bit_matter() -> None:
    base = torch.zeros(2, 2)
    flipped = base.clone()
    flipped.view(torch.int32)[1, 1] ^= 1
    variants = [
        [("a", base)],
        [("b", base)],
        [("a", base.view(4))],
        [("a", base.view(torch.int32))],
        [("a", flipped)],
        [("a", base), ("c", torch.zeros(0))],
    ]
    assert len({weights_sha256(named) for named in variants}) == len(variants)
