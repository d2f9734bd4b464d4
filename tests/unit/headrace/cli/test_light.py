"""Help and a look at a run import none of the libraries that training needs."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("datasets", "grpc", "headrace.services", "numpy", "opentelemetry", "pyarrow", "redis", "torch", "transformers")
PROGRAM = """
import sys
from headrace.cli.app import run
status = run(sys.argv[1].split())
print(status, *(name for name in sys.argv[2:] if name in sys.modules))
"""


@pytest.mark.parametrize("words", ["--help", "status run", "runs list ."])
def test_it_imports_nothing_heavy(words: str, tmp_path: Path) -> None:
    (tmp_path / "run" / "config").mkdir(parents=True)
    (tmp_path / "run" / "config" / "run.toml").write_text('[run]\nid = "run"\n')
    command = [sys.executable, "-c", PROGRAM, words, *HEAVY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr
