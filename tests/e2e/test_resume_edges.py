"""Resumes that meet each other, or a run directory whose checkpoints are gone, as commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.run.execute import FAILED
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.long]
STEPS = 6


def resume(run: TinyRun) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "headrace", "train", "--resume", "--json", "--run-dir", str(run.run_dir)]
    return subprocess.Popen(
        command, env={**os.environ, **run.environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_of_two_resumes_behind_a_killed_supervisor_one_goes_on(tmp_path: Path) -> None:
    undisturbed = TinyRun(tmp_path / "undisturbed", steps=STEPS)
    undisturbed.start()
    undisturbed.finish()
    run = TinyRun(tmp_path / "tiny", steps=STEPS)
    run.start()
    run.wait_for_step(2)
    run.close()
    both = [resume(run), resume(run)]
    try:
        ended = [(one.communicate(timeout=300)[1], one.returncode) for one in both]
    finally:
        for one in both:
            one.kill()
    assert sorted(code for _, code in ended) == [0, 2], ended
    (refused,) = [said for said, code in ended if code == 2]
    assert "is in use by another headrace" in refused
    assert run.check()["weights_sha256"] == undisturbed.check()["weights_sha256"]


def test_a_resume_without_a_whole_checkpoint_names_the_way_out_and_changes_nothing(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "tiny", steps=STEPS)
    run.start("--trainer.checkpoint-every=2")
    run.finish()
    files = [path for path in (run.run_dir / "checkpoints").rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    journal = run.run_dir / "journal"
    before = {path: path.read_bytes() for path in sorted(journal.rglob("*")) if path.is_file()}
    resumed = resume(run)
    try:
        _, said = resumed.communicate(timeout=300)
    finally:
        resumed.kill()
    assert resumed.returncode == FAILED, said
    assert "checkpoint" in said and "begin a new run" in said, said
    assert not [line for line in said.splitlines() if line.startswith("{")], "a line of a log as JSON"
    after = {path: path.read_bytes() for path in sorted(journal.rglob("*")) if path.is_file()}
    assert {path: data for path, data in after.items() if path in before} == before
