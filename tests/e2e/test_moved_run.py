"""A run that made its own model is moved and copied: it goes on, and is exported, read and asked, where it lies now."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
MAKE = """[model.make]
characters = "0123456789+=. "
hidden = 32
intermediate = 64
layers = 2
heads = 2
kv_heads = 1
head_dim = 16
context = 32
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "a", steps=3, replicas=1)
    config = made.folder / "run.toml"
    text = config.read_text()
    assert '[model]\npath = "model"\n' in text
    config.write_text(text.replace('[model]\npath = "model"\n', MAKE))
    yield made
    made.close()


def resumed(run_dir: Path, steps: int) -> None:
    """By the run directory alone, whose own config says where the model is."""
    words = ("train", "--resume", "--run-dir", str(run_dir), f"--run.max-steps={steps}")
    command = [sys.executable, "-P", "-m", "headrace", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_moved_run_and_its_copy_are_used_where_they_lie(tiny: TinyRun, tmp_path: Path) -> None:
    tiny.start()
    tiny.finish()
    moved, copy = tmp_path / "b" / "moved", tmp_path / "copy"
    moved.parent.mkdir()
    tiny.run_dir.rename(moved)
    assert "in order" in said("check", moved)
    first = result("export", moved, "--out", tmp_path / "exported")
    assert first["step"] == 3
    assert isinstance(result("generate", moved, "--prompt", "1+2=", "--max-tokens", "3")["text"], str)
    shutil.copytree(moved, copy)
    # What is asked of the copy must not need the other one.
    moved.rename(tmp_path / "b" / "hidden")
    assert result("export", copy, "--out", tmp_path / "other")["weights_sha256"] == first["weights_sha256"]
    resumed(copy, 4)
    assert "in order" in said("check", copy)
    assert str(tmp_path / "b") not in (copy / "config" / "run.toml").read_text()
    assert result("export", copy, "--out", tmp_path / "third")["step"] == 4
