"""Paths in the config of a run directory that was moved or copied are those of where it lies now."""

import json
import shutil
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.config.run_dir import check_resumable
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths

CONFIG = """
[run]
id = "moved"
[model]
path = "{place}/model"
[data]
path = "{place}/demo/rows.jsonl"
eval_path = "{place}/gone.jsonl"
[[reward.scorers]]
name = "reward_model"
options = {{ path = "{place}/judge", note = "{place}" }}
"""


def make(place: Path, *, recorded: Path | None = None) -> Path:
    """A run directory at `place`, whose config is that of a start at `recorded`."""
    was = recorded or place
    for folder in ("config", "model", "judge", "demo"):
        (place / folder).mkdir(parents=True)
    (place / "demo" / "rows.jsonl").touch()
    RunPaths(place).run_toml.write_text(CONFIG.format(place=was))
    RunPaths(place).settings("trainer").write_text(json.dumps({"run_dir": str(was)}))
    return place


@pytest.mark.parametrize("copied", [False, True], ids=["moved", "copied"])
def test_paths_below_the_old_place_are_read_below_the_new_one(tmp_path: Path, copied: bool) -> None:
    old, new = make(tmp_path / "old"), tmp_path / "elsewhere" / "new"
    shutil.copytree(old, new)
    if not copied:
        shutil.rmtree(old)
    config = resolve(RunPaths(new).run_toml).config
    assert config.model.path == new / "model"
    assert config.data.path == str(new / "demo" / "rows.jsonl")
    options = config.reward.scorers[0].options
    assert options["path"] == str(new / "judge")
    # The first is not there, the other is no path below the old place.
    assert config.data.eval_path == str(old / "gone.jsonl") and options["note"] == str(old)
    check_resumable(new, config, ("data.path", "data.eval_path"))


def test_paths_in_arguments_are_used_as_given(tmp_path: Path) -> None:
    old, new = make(tmp_path / "old"), tmp_path / "new"
    shutil.copytree(old, new)
    found = resolve(RunPaths(new).run_toml, arguments=[f"--model.path={old}/model"])
    assert found.config.model.path == old / "model"


def test_a_moved_run_still_rejects_different_data(tmp_path: Path) -> None:
    old, new = make(tmp_path / "old"), tmp_path / "new"
    shutil.copytree(old, new)
    other = resolve(RunPaths(new).run_toml, arguments=[f"--data.path={old}/demo/other.jsonl"]).config
    with pytest.raises(ConfigError, match=r"data\.path was '.*/new/demo/rows\.jsonl'"):
        check_resumable(new, other, ("data.path",))
