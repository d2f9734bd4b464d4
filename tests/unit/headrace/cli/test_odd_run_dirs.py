"""A run directory whose path breaks the broker's address or a library is refused in one line; nothing is made."""

import os
from pathlib import Path

import pytest

from tests.verbs import ended

CONFIG = """
[run]
id = "odd"
stage = "{stage}"
[model]
path = "model"
[data]
path = "rows.jsonl"
"""
ODD = {b"new\nline": "a line break", b"tab\there": "control character", b"x\xff": "no valid UTF-8"}
COMMANDS = {
    "train": ("train", "{config}", "--run-dir", "{folder}"),
    "sft": ("train", "{config}", "--run.stage=sft", "--run-dir", "{folder}"),
    "resume": ("train", "{config}", "--resume", "--run-dir", "{folder}"),
    "prepare": ("prepare", "{config}", "--run-dir", "{folder}", "--orchestrator", "o:7000", "--broker.url=redis://b"),
    "plot": ("plot", "{folder}"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_path_is_refused_in_one_line(tmp_path: Path, name: bytes, command: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(stage="rl"))
    folder = tmp_path / os.fsdecode(name) / "run"
    found = ended(*(word.format(config=config, folder=folder) for word in COMMANDS[command]))
    assert found.status == 2 and len(found.complaint.splitlines()) == 1, found.complaint
    assert ODD[name] in found.complaint and found.complaint.startswith("error: the run directory ")
    assert not folder.parent.exists()


@pytest.mark.parametrize("name", ["sp ace", "ünï🙂", "a#b?c", "a%20b", "q'u\"o$(x)", "nbsp\u00a0"])
def test_other_paths_are_not_refused(tmp_path: Path, name: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(stage="rl"))
    found = ended("train", config, "--run-dir", tmp_path / name)
    assert found.status == 2 and "model" in found.complaint and "run directory" not in found.complaint
