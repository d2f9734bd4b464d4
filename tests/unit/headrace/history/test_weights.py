"""The hash without torch is the hash with torch."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headrace.inspect.history.weights import weights_sha256
from headrace.wire.errors import DataError
from headrace.wire.weights import digest


def test_the_hash_depends_on_the_tensors_and_not_on_their_files(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    tensors = {
        "z": torch.randn(3, 4, generator=random),
        "a.b": torch.randn(5, generator=random).to(torch.bfloat16),
        "m": torch.arange(6).reshape(2, 3),
        "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(1.5),
    }
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    save_file(tensors, one)
    expected = digest.weights_sha256(tensors.items())
    assert weights_sha256([one]) == expected
    save_file({key: tensors[key] for key in ("m", "empty")}, one, metadata={"format": "pt"})
    save_file({key: tensors[key] for key in ("z", "a.b", "scalar")}, two)
    assert weights_sha256([one, two]) == expected
    save_file({**tensors, "m": tensors["m"] + 1}, one)
    assert weights_sha256([one]) != expected


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    save_file({"a": torch.from_numpy(np.ones(100, np.float32))}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="not safetensors, or cut short"):
        weights_sha256([path])


@pytest.mark.parametrize(
    "start",
    [
        b"no",
        b"\xff" * 8 + b"{}",
        struct.pack("<Q", 10) + b'{"secret":',
        struct.pack("<Q", 10_000) + b"[" * 10_000,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 7) + b'{"a":3}',
        struct.pack("<Q", 56) + b'{"a":{"dtype":"none","shape":[1],"data_offsets":[0, 4]}}',
    ],
)
def test_a_file_that_is_not_safetensors_is_refused_and_not_quoted(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "one.safetensors"
    path.write_bytes(start)
    with pytest.raises(DataError) as refused:
        weights_sha256([path])
    assert str(refused.value) == f"{path}: not safetensors, or cut short"
