"""Replicas that are given the same GPUs share them out by locks."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.deploy.scripts import DEPLOY

SHOW = "import os, sys, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.readline()"


def nvidia_smi(folder: Path, *uuids: str) -> dict[str, str]:
    """An environment in which the driver's tool lists these GPUs."""
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\n" + "".join(f"echo {uuid}\n" for uuid in uuids))
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def start(folder: Path, env: dict[str, str], *, count: int = 1, wait: float = 0.0) -> "subprocess.Popen[str]":
    own = [sys.executable, str(DEPLOY / "docker/gpus.py"), "--count", str(count), "--locks", str(folder / "locks")]
    return subprocess.Popen(
        [*own, "--wait", str(wait), "--", sys.executable, "-c", SHOW],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def shown(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_each_replica_has_gpus_of_its_own_and_a_dead_ones_are_free(tmp_path: Path) -> None:
    env = nvidia_smi(tmp_path, "GPU-a", "GPU-b", "GPU-c")
    first, second = start(tmp_path, env), start(tmp_path, env, count=2, wait=5)
    try:
        assert sorted(f"{shown(first)},{shown(second)}".split(",")) == ["0", "1", "2"]
        third = start(tmp_path, env)
        _, said = third.communicate(timeout=20)
        assert third.returncode == 2 and "fewer than 1 are free" in said and "gpus.yml" in said

        waiting = start(tmp_path, env, count=2, wait=20)
        time.sleep(0.2)
        second.kill()
        assert len(shown(waiting).split(",")) == 2
        waiting.communicate("\n", timeout=20)
    finally:
        for process in (first, second):
            process.kill()
            process.communicate(timeout=20)
