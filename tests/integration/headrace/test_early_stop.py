"""Ctrl-C while the command line still imports its modules."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

SLOW = "import pathlib, time; pathlib.Path(__file__).with_name('importing').touch(); time.sleep(600)"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("module", ["typer", "redis"])  # Of the command line, and of the verb.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_exits_with_130_and_one_line(tmp_path: Path, module: str, number: signal.Signals) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-P", "-m", "headrace", "train", "run.toml"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        until((tmp_path / "importing").exists, "the imports")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, "error: stopped before anything was started\n")
