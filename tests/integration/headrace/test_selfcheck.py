"""`headrace doctor --gpu` without a GPU: every part that needs none runs, the others are not called a success."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import gpu
from headrace.selfcheck import step
from headrace.selfcheck.check import GROUPS, PROBES, Probe, ProbeResult, run_probes
from headrace.wire.environment import inherited

ROOT = Path(__file__).parents[3]


def rows_of(*probes: Probe, **environment: str) -> list[ProbeResult]:
    return run_probes(probes, on="cpu", environment=inherited() | environment, say=lambda _: None)


@pytest.mark.long
def test_on_a_cpu_gloo_runs_and_nccl_is_not_called_ok(tmp_path: Path) -> None:
    # A session of pytest of its own, which is none of those that are counted (tests/gate/failures.py).
    inherited = {name: value for name, value in os.environ.items() if name not in ("HEADRACE_FAILED", "PYTEST_ADDOPTS")}
    env = inherited | {gpu.ON: "cpu", "OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        ["tests/gpu/run.sh"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = (tmp_path / "tests.log").read_text()
    assert " passed" in tests and "not here: needs CUDA" in tests
    found = json.loads((tmp_path / "probes.json").read_text().splitlines()[-1])
    status = {row["name"]: row["status"] for row in found["probes"]}
    assert not found["ok"], "what was not tried is no success"
    assert [name for name in status if name.startswith("nccl") and status[name] != "not here"] == []
    run = {probe.name for probe in PROBES if probe.on_cpu is not None}
    assert {name for name, what in status.items() if what == "ok"} == run
    assert "not tried here" in done.stderr and "not here  nccl bytes" in done.stderr


def test_a_probe_that_is_broken_is_red(tmp_path: Path) -> None:
    # Bytes that change on the way: the receiver's group adds one to what it got.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'receive' in sys.argv:\n"
        "    from headrace.wire.weights import CollectiveGroup\n"
        "    whole = CollectiveGroup.broadcast\n"
        "    CollectiveGroup.broadcast = lambda self, tensor, s: (whole(self, tensor, s), tensor.add_(1))[0]\n"
    )
    probe = next(one for one in PROBES if one.name == "gloo bytes")
    path = os.pathsep.join(filter(None, [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    (row,) = rows_of(probe, PYTHONPATH=path)
    assert (row.status, row.said) == ("failed", "other bytes arrived")


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        ("headrace.selfcheck.nothing", (), "status 1: "),
        (GROUPS, ("--no-such-option",), "status 2: "),
        ("headrace.selfcheck", (), "status 1: "),
    ],
)
def test_a_probe_that_ends_without_its_line_failed(module: str, arguments: tuple[str, ...], said: str) -> None:
    (row,) = rows_of(Probe(name="broken", module=module, arguments=arguments, on_cpu=()))
    assert row.status == "failed" and row.said.startswith(said), row


def test_a_probe_that_hangs_ends_at_its_deadline() -> None:
    probe = Probe(name="late", module=GROUPS, arguments=("kill", "--backend", "gloo"), on_cpu=("--linger", "600"))
    (row,) = rows_of(Probe(name="late", module=probe.module, arguments=probe.arguments, on_cpu=probe.on_cpu,
                           deadline_s=1.0))  # fmt: skip
    assert row.status == "failed" and "WaitTimeoutError" in row.said


def test_a_step_that_the_memory_plan_finds_too_large_is_not_tried(tmp_path: Path) -> None:
    options = argparse.Namespace(budget=16384, chunk=0, checkpointing=False)
    assert re.match(r"needs 1[78]\d GiB, 140 are free", step._lack(step.SIZES["4"], options, 140 << 30))
    options.checkpointing = True
    assert step._lack(step.SIZES["4"], options, 140 << 30) == ""
    # What a probe says then, in the place of one.
    (tmp_path / "large.py").write_text('print(\'{"ok": false, "here": false, "said": "needs 178 GiB"}\')')
    path = os.pathsep.join(filter(None, [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    (row,) = rows_of(Probe(name="large", module="large", on_cpu=()), PYTHONPATH=path)
    assert (row.status, row.said, row.numbers) == ("not here", "needs 178 GiB", {})


def test_without_a_gpu_the_way_out_is_named() -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    env.pop(gpu.ON, None)
    command = [sys.executable, "-P", "-m", "headrace", "doctor", "--gpu"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "HEADRACE_GPU_TESTS_ON=cpu" in done.stderr
