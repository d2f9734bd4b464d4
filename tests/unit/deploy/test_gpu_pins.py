"""Trainer and SGLang have one NCCL on a machine with GPUs: with two, no publication ever goes by it."""

import re
import tomllib

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
def test_the_pin_table_is_for_the_sglang_version_of_the_project(file: str) -> None:
    (version,) = set(re.findall(NAMED[file], (ROOT / file).read_text(), re.MULTILINE))
    assert version == PINS["sglang"]["version"], f"{file} and deploy/gpu/pins.toml"


def test_the_trainer_and_sglang_pin_the_same_nccl() -> None:
    (torch,) = [line.partition("==")[2] for line in PINS["sglang"]["requires"] if line.startswith("torch==")]
    ours = pinned("constraints-gpu.txt", "torch")
    assert SCRIPT.nccl_of(PINS, ours) == SCRIPT.nccl_of(PINS, torch)
    assert pinned("constraints-gpu.txt", "nvidia-nccl-cu13") == SCRIPT.nccl_of(PINS, torch)


def test_every_other_package_has_the_same_pin_with_and_without_a_gpu() -> None:
    wanted = SCRIPT.with_pins((ROOT / "constraints.txt").read_text(), SCRIPT.wanted(PINS))
    assert (ROOT / "constraints-gpu.txt").read_text() == wanted, "make lock"
    lines = set(wanted.splitlines()) ^ set((ROOT / "constraints.txt").read_text().splitlines())
    assert {line.partition("==")[0] for line in lines if not line.startswith("#")} == {"torch", "nvidia-nccl-cu13"}


"""Makes a virtual environment in name, and installs nothing into it; all else the real interpreter does."""
