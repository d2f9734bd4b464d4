"""Two starts in one run directory: the second is refused and changes nothing, the first removes nothing of a second."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config.resolve import Resolved
from headrace.config.run_dir import absent_folders, make_private, take_away
from headrace.demo.arithmetic import CHARACTERS
from headrace.demo.demo import prepare_demo, prepared_demo
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.launch import prepare_run
from headrace.run.preparation.locked_start import locked_start
from headrace.supervisor.lock import RunLock, supervisor_pid
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from tests.verbs import said
from tests.waiting import until


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


def test_what_a_second_start_makes_while_a_failed_one_leaves_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "one"
    absent = absent_folders(run_dir)
    make_private(absent)
    first = RunLock(run_dir)
    second: list[RunLock] = []
    real = Path.rmdir

    def leave(path: Path) -> None:
        # The first has removed the file of its lock: its folders may be a second's from here on.
        if not second:
            second.append(RunLock(run_dir))
            RunPaths(run_dir).prompts.write_bytes(b"mine")
        real(path)

    monkeypatch.setattr(Path, "rmdir", leave)
    take_away(absent)
    first.release()
    assert RunPaths(run_dir).prompts.read_bytes() == b"mine" and supervisor_pid(run_dir) == os.getpid()
    second[0].release()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, removals = fcntl.flock, [RunPaths(tmp_path).supervisor]

    def lock(file: int, how: int) -> None:
        if removals:
            removals.pop().unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    held = RunLock(tmp_path)
    with pytest.raises(ConfigError, match="in use"):
        RunLock(tmp_path)
    held.release()
    held.release()
    RunLock(tmp_path).release()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_of_two_demos_the_first_ends_with_a_whole_model(tmp_path: Path) -> None:
    run_dir = tmp_path / "demo"
    small = ["--run.max-steps", "2", "--sft.steps", "5", "--batch.groups", "8", "--eval.every", "0"]
    command = [sys.executable, "-P", "-m", "headrace", "demo", "--run-dir", str(run_dir), *small]
    with (tmp_path / "log").open("w") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: (run_dir / "demo" / "sft").is_dir(), "the first demo to make its files")
        again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert again.returncode == 2, again
        assert again.stderr == f"error: {run_dir} is in use by another headrace (pid {first.pid})\n"
        assert first.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        first.kill()
        first.wait(60)
    assert (run_dir / "export" / "tokenizer.json").is_file()
    with pytest.raises(ConfigError, match="already holds a run"):
        prepare_demo(run_dir, [], os.environ, quiet)
