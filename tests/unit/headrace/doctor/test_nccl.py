"""Two environments with unequal NCCL are told of before a run, with the way out."""

import re
import stat
import sys
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.doctor import software
from headrace.doctor.findings import Level
from headrace.doctor.wants import Wants
from headrace.wire.process.environment import inherited

TEXT = """
[model]
path = "model"
[data]
path = "rows.jsonl"
[run]
device = "{device}"
[rollout]
engine = "sglang"
[rollout.sglang]
venv = "venv"
device = "{server}"
[[reward.scorers]]
name = "math"
"""


def packages(folder: Path, torch: str, nccl: str, **others: str) -> Path:
    """Site-packages with a torch that asks for this NCCL, and it; empty = a torch that asks for none."""
    asks = f'Requires-Dist: nvidia-nccl-cu13=={nccl}; platform_system == "Linux"\n' if nccl else ""
    found = others | {"torch": torch} | ({"nvidia-nccl-cu13": nccl} if nccl else {})
    for name, version in found.items():
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(head + (asks if name == "torch" else ""))
    return folder


def environment(folder: Path, site: Path) -> None:
    """A `venv/bin/python` that sees this site-packages first."""
    path = folder / "venv" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def wants(folder: Path, device: str = "cuda", server: str = "auto") -> Wants:
    file = folder / "run.toml"
    file.write_text(TEXT.format(device=device, server=server))
    return Wants.of(resolve(file))


@pytest.mark.parametrize(
    ("here", "there", "level", "says"),
    [
        (("2.14.1", "2.30.7"), ("2.14.1", "2.30.7"), Level.OK, "torch 2.14.1, .*NCCL 2.30.7 like the trainer's"),
        (("2.13.0", "2.29.7"), ("2.14.1", "2.30.7"), Level.WARN, "NCCL 2.30.7 there and 2.29.7 here"),
        (("2.14.1", ""), ("2.14.1", "2.30.7"), Level.WARN, "NCCL 2.30.7 there and unknown here"),
        (("2.14.1", ""), ("2.14.1", ""), Level.OK, "no package reports its NCCL version"),
    ],
)
def test_the_nccl_of_both_environments_is_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: tuple[str, str],
    there: tuple[str, str],
    level: Level,
    says: str,
) -> None:
    environment(tmp_path, packages(tmp_path / "there", *there, sglang="0.5.23"))
    monkeypatch.syspath_prepend(str(packages(tmp_path / "here", *here)))
    found = software.sglang(wants(tmp_path), inherited())
    assert found.level is level, found
    assert re.search(says, found.said), found.said
    if level is Level.WARN:
        assert "make gpu" in found.fix and "install torch==2.14.1 for CUDA here" in found.fix
