"""Weights on disk: whole or refused."""

from pathlib import Path

import pytest
import torch

from headrace.wire.errors import ContractError
from headrace.wire.weights import load_weights, read_metadata, save_weights

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}


def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "v000001"
    save_weights(folder, WEIGHTS.items(), {"version": "1"})
    return folder


def test_saved_weights_load_unchanged(tmp_path: Path) -> None:
    loaded = load_weights(saved(tmp_path))
    assert loaded.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        torch.testing.assert_close(loaded[name], tensor, rtol=0, atol=0)
    assert read_metadata(tmp_path / "v000001") == {"version": "1"}


def test_nothing_is_left_beside_the_folder_and_a_second_save_replaces_it(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    save_weights(folder, [("a", torch.zeros(1))], {})
    assert [path.name for path in tmp_path.iterdir()] == ["v000001"]
    assert load_weights(folder)["a"].tolist() == [0]


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
def test_a_torn_file_is_refused(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path) / name
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ContractError, match="bad_weights"):
        load_weights(path.parent)


@pytest.mark.parametrize("where", [3, 40, -1])
def test_a_flipped_bit_is_refused(tmp_path: Path, where: int) -> None:
    path = saved(tmp_path) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.raises(ContractError, match="damaged"):
        load_weights(path.parent)
