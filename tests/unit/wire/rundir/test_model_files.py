"""The record of a run's model: any other file of it is named, and large files of weights are sampled."""

import shutil
from pathlib import Path

import pytest

from headrace.wire.errors import ConfigError
from headrace.wire.rundir import model_files
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import (
    as_json,
    check_same_model,
    check_tokenizer,
    read_model_files,
    recorded_model,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder whose files a run in `tmp_path / "run"` has recorded."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "notes.txt"):
        (folder / name).write_text(f"what is in {name}")
    record(folder, tmp_path / "run")
    return folder


def record(folder: Path, run_dir: Path) -> None:
    RunPaths(run_dir).config.mkdir(parents=True, exist_ok=True)
    RunPaths(run_dir).model_files.write_text(as_json(read_model_files(folder)))


def test_the_recorded_model_reads_back_unchanged(model: Path, tmp_path: Path) -> None:
    found = recorded_model(tmp_path / "run")
    assert found == read_model_files(model) and found is not None
    assert set(found.files) == {"config.json", "tokenizer.json"} and set(found.weights) == {"model.safetensors"}
    assert "config/model_files.json" in config_digests(tmp_path / "run")


def test_the_same_files_elsewhere_are_the_same_model(model: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(model, tmp_path / "moved")
    (moved / "notes.txt").write_text("other notes")
    shutil.rmtree(model)
    assert check_same_model(moved, tmp_path / "run", weights=True)
    check_tokenizer(moved, tmp_path / "run")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_changed_model_file_is_named_with_a_fix(model: Path, tmp_path: Path, name: str) -> None:
    (model / name).write_text("another")
    with pytest.raises(ConfigError) as caught:
        check_same_model(model, tmp_path / "run", weights=False)
    assert f"model.path: {model / name} has changed since the run's first start: restore it" in str(caught.value)
    RunPaths(tmp_path / "run").model_files.unlink()
    assert not check_same_model(model, tmp_path / "run", weights=True)


def test_a_file_that_came_or_went_is_named(model: Path, tmp_path: Path) -> None:
    (model / "chat_template.jinja").write_text("")
    with pytest.raises(ConfigError, match=r"chat_template.jinja was not there"):
        check_same_model(model, tmp_path / "run", weights=False)
    (model / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"chat_template.jinja \(and 1 more\) was not there"):
        check_tokenizer(model, tmp_path / "run")
    (model / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer.json is gone"):
        check_tokenizer(model, tmp_path / "run")


def test_weights_count_where_they_are_needed_again(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").write_text("others")
    assert check_same_model(model, tmp_path / "run", weights=False)
    with pytest.raises(ConfigError, match=r"model\.safetensors has changed"):
        check_same_model(model, tmp_path / "run", weights=True)


def test_a_large_file_is_compared_by_size_and_samples(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "WHOLE_BYTES", 1000)
    weights = model / "model.safetensors"
    size = 10_000_000
    weights.write_bytes(bytes(size))
    record(model, tmp_path / "run")
    found = recorded_model(tmp_path / "run")
    assert found is not None and found.weights["model.safetensors"].startswith("sampled:")
    for begin, end in ((0, 1), (size - 1, size), (size // 2, size // 2 + 200_000)):
        data = bytearray(size)
        data[begin:end] = b"\1" * (end - begin)
        weights.write_bytes(data)
        with pytest.raises(ConfigError, match=r"model\.safetensors has changed"):
            check_same_model(model, tmp_path / "run", weights=True)
    weights.write_bytes(bytes(size + 1))
    with pytest.raises(ConfigError, match=r"model\.safetensors has changed"):
        check_same_model(model, tmp_path / "run", weights=True)
    weights.write_bytes(bytes(size))
    assert check_same_model(model, tmp_path / "run", weights=True)
