"""An export replaces an earlier export, and nothing else."""

from pathlib import Path

import pytest
import torch

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.export.written import ADAPTER_ONLY_TITLE, check_target, foreign_entry
from headrace.services.trainer.model.loading import load_policy
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.model_files import TOKENIZER_FILES
from tests.unit.services.trainer.builders import tiny_folder

ADAPTERS = LoraTable(rank=2, alpha=4, targets=["q_proj"])


def exported(folder: Path, lora: LoraTable | None = None) -> Path:
    """An export with every file of a tokenizer that one can have."""
    source = tiny_folder(folder / "model")
    for name in TOKENIZER_FILES:
        (source / name).write_text("{}")
    policy = load_policy(source, device="cpu", forward_dtype=torch.float32, lora=lora)
    backend = SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    export_model(backend, source, folder / "export", dtype=torch.float32)
    return folder / "export"


@pytest.mark.parametrize("lora", [None, ADAPTERS])
def test_an_export_may_replace_an_earlier_export(tmp_path: Path, lora: LoraTable | None) -> None:
    folder = exported(tmp_path, lora)
    assert (folder / "tokenizer.json").is_file() and (folder / "adapter").is_dir() == (lora is not None)
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json", "generation_config.json"):
        (folder / name).write_text("")
    (folder / "README.md").write_text(f"{ADAPTER_ONLY_TITLE}\nThis run ...")
    assert foreign_entry(folder) == "" == foreign_entry(tmp_path / "nothing")
    check_target(folder, run_dir=tmp_path / "run", sources=(tmp_path / "model",))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("thesis.tex", "thesis.tex"),
        ("src/main.py", "src/"),
        ("README.md", "README.md"),
        ("adapter/notes.md", "adapter/"),
        ("model-of-mine.safetensors", "model-of-mine.safetensors"),
        ("config.json.d/x", "config.json.d/"),
    ],
)
def test_an_export_rejects_a_folder_with_any_user_file(tmp_path: Path, name: str, shown: str) -> None:
    folder = exported(tmp_path, ADAPTERS)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("precious")
    assert foreign_entry(folder) == shown
    with pytest.raises(ConfigError, match=r"export contains files that are not an export's .* with --out$"):
        check_target(folder, run_dir=tmp_path / "run", sources=())


def test_a_linked_file_counts_as_foreign_in_an_export(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    blob = (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(blob)
    assert foreign_entry(folder) == "model.safetensors"


@pytest.mark.parametrize(
    "where", [".", "run", "run/export", "run/exports", "run/journal/x", "model", "model/new", "link"]
)
def test_the_model_and_the_run_directory_are_not_written_over(tmp_path: Path, where: str) -> None:
    for name in ("run/exports", "model"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("model")
    with pytest.raises(ConfigError, match="an export there would replace files of"):
        check_target(tmp_path / where, run_dir=tmp_path / "run", sources=(tmp_path / "model",))
    check_target(tmp_path / "run" / "exports" / "mine", run_dir=tmp_path / "run", sources=(tmp_path / "model",))
