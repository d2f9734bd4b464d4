"""Trainer and SGLang have one NCCL on a machine with GPUs: with two, no publication ever goes by it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.unit.deploy.scripts import DEPLOY, load

ROOT = DEPLOY.parent
SCRIPT = load("gpu/pins.py")
PINS = tomllib.loads(SCRIPT.PINS.read_text())
NAMED = {
    ".env": r"^ENGINE_IMAGE=\S*?:v(\d+\.\d+\.\d+)",
    "deploy/docker/trainer.Dockerfile": r"^ARG ENGINE_IMAGE=\S*?:v(\d+\.\d+\.\d+)",
    "deploy/docker/rollout.Dockerfile": r"^ARG ENGINE_IMAGE=\S*?:v(\d+\.\d+\.\d+)",
    "deploy/sglang-cpu/requirements-nodeps.txt": r"^sglang==(\S+)$",
    "deploy/gpu/requirements.txt": r"^sglang==(\S+)$",
}
"""Where the project says which SGLang it is made for."""


def pinned(file: str, name: str) -> str:
    found = re.findall(rf"^{re.escape(name)}==(\S+)$", (ROOT / file).read_text(), re.MULTILINE)
    assert len(found) == 1, f"{file}: {name} {found}"
    return str(found[0])


@pytest.mark.parametrize("file", NAMED)
def test_the_table_is_of_the_sglang_that_the_project_names(file: str) -> None:
    (version,) = set(re.findall(NAMED[file], (ROOT / file).read_text(), re.MULTILINE))
    assert version == PINS["sglang"]["version"], f"{file} and deploy/gpu/pins.toml"


def test_the_trainers_nccl_is_that_of_sglang() -> None:
    (torch,) = [line.partition("==")[2] for line in PINS["sglang"]["requires"] if line.startswith("torch==")]
    ours = pinned("constraints-gpu.txt", "torch")
    assert SCRIPT.nccl_of(PINS, ours) == SCRIPT.nccl_of(PINS, torch)
    assert pinned("constraints-gpu.txt", "nvidia-nccl-cu13") == SCRIPT.nccl_of(PINS, torch)


def test_all_else_is_pinned_as_it_is_without_a_gpu() -> None:
    wanted = SCRIPT.with_pins((ROOT / "constraints.txt").read_text(), SCRIPT.wanted(PINS))
    assert (ROOT / "constraints-gpu.txt").read_text() == wanted, "make lock"
    lines = set(wanted.splitlines()) ^ set((ROOT / "constraints.txt").read_text().splitlines())
    assert {line.partition("==")[0] for line in lines if not line.startswith("#")} == {"torch", "nvidia-nccl-cu13"}


def test_an_environment_with_another_torch_or_without_nccl_is_named() -> None:
    assert SCRIPT.problems({"torch": "2"}, {"torch": "2"}.__getitem__) == []
    said = SCRIPT.problems({"nvidia-nccl-cu13": "2.30.7", "torch": "2"}, {"nvidia-nccl-cu13": "", "torch": "1"}.get)
    assert said == ["nvidia-nccl-cu13 is not installed, 2.30.7 is wanted", "torch 1, 2 is wanted"]
    done = subprocess.run([sys.executable, SCRIPT.__file__, "check"], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == done.stdout.startswith(sys.prefix)
    assert (done.returncode == 1) == done.stderr.startswith(sys.prefix)


def test_an_environment_that_make_gpu_has_begun_stays_one_for_gpus(tmp_path: Path) -> None:
    def installs(ready: str) -> str:
        venv = f"VENV={tmp_path / 'venv'}"
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        return subprocess.run(
            ["make", "--dry-run", venv, ready], cwd=ROOT, capture_output=True, text=True, check=True, env=env
        ).stdout

    mark, ready = tmp_path / "venv" / ".gpu", str(tmp_path / "venv" / ".ready")
    assert (
        f"torch=={pinned('constraints.txt', 'torch')}" in (plain := installs(ready)) and "-c constraints.txt" in plain
    )
    mark.parent.mkdir()
    Path(ready).touch()
    assert "install" not in installs(ready)
    mark.touch()
    os.utime(ready, ns=(0, mark.stat().st_mtime_ns - 1))
    again = installs(ready)
    assert f"torch=={pinned('constraints-gpu.txt', 'torch')}" in again and "-c constraints-gpu.txt" in again


_PYTHON = """#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip install"*) echo "$@" >> {folder}/installed ;;
*) PYTHONPATH={folder}/site exec {python} "$@" ;;
esac
"""
"""Makes a virtual environment in name, and installs nothing into it; all else the real interpreter does."""


def test_sglang_is_installed_once_and_only_what_has_the_pinned_nccl_counts(tmp_path: Path) -> None:
    python, venv, wanted = tmp_path / "python", tmp_path / "venv", SCRIPT.wanted(PINS)
    python.write_text(_PYTHON.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)

    def install() -> subprocess.CompletedProcess[str]:
        command = [str(DEPLOY / "gpu" / "install.sh"), str(venv)]
        env = os.environ | {"PYTHON": str(python)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    def lay(name: str, version: str) -> None:
        info = tmp_path / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    lay("torch", f"{wanted['torch']}+cpu")
    refused = install()
    assert refused.returncode == 1 and "a build of torch for CPUs" in refused.stderr, refused
    shutil.rmtree(tmp_path / "site")
    for name, version in wanted.items():
        lay(name, version)
    assert install().returncode == 0 and install().returncode == 0
    calls = (tmp_path / "installed").read_text().splitlines()
    # The refused one, and the one that counts: a second call finds it done.
    assert len(calls) == 2 and all("deploy/gpu/requirements.txt" in call for call in calls)
