"""Two starts in one run directory: the second is refused and changes nothing, the first removes nothing of a second."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config.resolve import Resolved
from headrace.demo.arithmetic import CHARACTERS
from headrace.demo.demo import prepared_demo
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.launch import prepare_run
from headrace.run.preparation.locked_start import locked_start
from headrace.supervisor.lock import RunLock, supervisor_pid
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from tests.verbs import said


def quiet(_text: str) -> None:
    """What a preparation says."""


def files(folder: Path) -> dict[str, bytes]:
    """All files below, and what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_refused(run_dir: Path) -> None:
    """A second demo is refused, and changes no file."""
    before = files(run_dir)
    complaint = said("demo", "--run-dir", run_dir, status=2)
    assert f"{run_dir} is in use by another headrace (pid {os.getpid()})" in complaint
    assert "in use" in said("prepare", "--demo", "--run-dir", run_dir, "--broker", "redis://localhost:1", status=2)
    assert files(run_dir) == before


def test_a_second_demo_is_refused_from_the_firsts_first_file_to_its_runs_end(tmp_path: Path) -> None:
    write_model(tmp_path / "model", character_tokenizer(CHARACTERS), Shape(layers=1, hidden=8), seed=0)
    run_dir = tmp_path / "demo"
    looks: list[str] = []

    def look(_resolved: Resolved) -> None:
        is_refused(run_dir)
        looks.append("config")

    # A model of its own: the supervised stage is left out.
    arguments = ["--model.path", str(tmp_path / "model")]
    with prepared_demo(run_dir, arguments, os.environ, quiet, check=look) as (resolved, lock):
        is_refused(run_dir)
        prepared = prepare_run(resolved, run_dir, resume=False, environment=os.environ, dry_run=True, lock=lock)
        is_refused(run_dir)
        prepared.held.close()
    assert looks == ["config"] and supervisor_pid(run_dir) is None
    assert {"demo", "config", "prompts.parquet"} <= {path.name for path in run_dir.iterdir()}


def test_a_start_that_fails_holds_its_lock_until_it_has_removed_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, removed = tmp_path / "runs" / "one", []

    def remove(path: Path, ignore_errors: bool = False) -> None:
        with pytest.raises(ConfigError, match="in use"):
            RunLock(run_dir)
        removed.append(path)
        real(path, ignore_errors=ignore_errors)

    real: Callable[..., None] = sys.modules["shutil"].rmtree
    monkeypatch.setattr("shutil.rmtree", remove)

    def fail(_resolved: Resolved) -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"), prepared_demo(run_dir, [], os.environ, quiet, check=fail):
        pass
    assert RunPaths(run_dir).demo in removed and not run_dir.parent.exists()
    removed.clear()
    with pytest.raises(ConfigError, match="no"), locked_start(run_dir) as (_, held):
        held.callback(removed.append, Path("closed"))
        RunPaths(run_dir).prompts.write_bytes(b"")
        RunPaths(run_dir).staging.mkdir()
        raise ConfigError("no")
    assert removed == [Path("closed"), RunPaths(run_dir).staging] and not run_dir.parent.exists()
