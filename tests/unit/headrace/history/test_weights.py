"""The hash without torch is the hash with torch."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headrace.inspect.history.weights import weights_sha256
from headrace.wire.errors import DataError
from headrace.wire.weights import digest


def test_the_hash_equals_that_of_the_tensors_whatever_their_files(tmp_path: Path) -> None:
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


def test_a_cut_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    save_file({"a": torch.from_numpy(np.ones(100, np.float32))}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="is cut short"):
        weights_sha256([path])
    path.write_bytes(b"no")
    with pytest.raises(DataError, match="is not a safetensors file"):
        weights_sha256([path])


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"\xff" * 8 + b"{}", f"its header would have {2**64 - 1} bytes"),
        (struct.pack("<Q", 2**40) + b"{}", f"its header would have {2**40} bytes"),
        (struct.pack("<Q", 100) + b"{}", "its header would have 100 bytes"),
        (struct.pack("<Q", 2**34), f"its header would have {2**34} bytes"),
        (struct.pack("<Q", 10) + b'{"secret":', "its header does not describe tensors"),
        (struct.pack("<Q", 10_000) + b"[" * 10_000, "its header does not describe tensors"),
        (struct.pack("<Q", 2) + b"[]", "its header does not describe tensors"),
    ],
)
def test_a_header_is_read_only_as_far_as_the_file_has_it_and_is_not_quoted(
    tmp_path: Path, start: bytes, told: str
) -> None:
    path = tmp_path / "one.safetensors"
    path.write_bytes(start)
    with pytest.raises(DataError) as refused:
        weights_sha256([path])
    assert str(refused.value) == f"{path} is not a safetensors file: {told}"


def test_a_header_longer_than_any_is_not_read_though_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**34))
        file.truncate(2**35)  # Sparse.
    with pytest.raises(DataError, match="its header would have"):
        weights_sha256([path])


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {"dtype": "F32", "shape": 3, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]},
        {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]},
        {"dtype": "of no type", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": [], "shape": [1], "data_offsets": [0, 4]},
    ],
)
def test_an_entry_that_describes_no_tensor_is_refused(tmp_path: Path, entry: object) -> None:
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "one.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    with pytest.raises(DataError, match="its header does not describe tensors"):
        weights_sha256([path])
