"""Two starts in one run directory: the second is refused and changes nothing."""

import os
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.demo.arithmetic import CHARACTERS
from headrace.demo.demo import prepared_demo
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.launch import prepare_run
from headrace.supervisor.lock import supervisor_pid
from tests.verbs import said


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


def test_a_second_demo_is_refused_while_the_first_prepares_or_runs(tmp_path: Path) -> None:
    write_model(tmp_path / "model", character_tokenizer(CHARACTERS), Shape(layers=1, hidden=8), seed=0)
    run_dir = tmp_path / "demo"
    looks: list[str] = []

    def look(_resolved: Resolved) -> None:
        is_refused(run_dir)
        looks.append("config")

    # A model of its own: the supervised stage is left out.
    arguments = ["--model.path", str(tmp_path / "model")]
    with prepared_demo(run_dir, arguments, os.environ, lambda _: None, check=look) as (resolved, lock, _):
        is_refused(run_dir)
        prepared = prepare_run(resolved, run_dir, resume=False, environment=os.environ, dry_run=True, lock=lock)
        is_refused(run_dir)
        prepared.held.close()
    assert looks == ["config"] and supervisor_pid(run_dir) is None
    assert {"demo", "config", "prompts.parquet"} <= {path.name for path in run_dir.iterdir()}
