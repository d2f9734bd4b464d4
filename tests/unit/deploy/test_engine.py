"""What an engine image must have, asked by its own Python while ours are built on it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.deploy.scripts import DEPLOY


def run(**changed: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_HOME"}
    command = [sys.executable, str(DEPLOY / "docker/engine.py")]
    return subprocess.run(command, env=environment | changed, capture_output=True, text=True, timeout=120, check=False)


def test_its_torch_is_listed_as_a_constraint_with_its_place() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    (torch,) = [line for line in done.stdout.splitlines() if line.startswith("torch==")]
    assert torch.partition("  # ")[2].endswith("site-packages")


def test_an_engine_image_with_cuda_home_must_contain_nvcc(tmp_path: Path) -> None:
    done = run(CUDA_HOME=str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip() == (
        f"this image has no {tmp_path}/bin/nvcc: ENGINE_IMAGE must be one that SGLang can compile kernels in"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").touch()
    assert run(CUDA_HOME=str(tmp_path)).stdout == run().stdout != ""
