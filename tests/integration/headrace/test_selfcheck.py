"""`headrace doctor --gpu` without a GPU: every part that needs none runs, the others are not called a success."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from headrace.cli import gpu
from headrace.selfcheck import step
from headrace.selfcheck.check import PROBES, Probe, ProbeResult, run_probes
from headrace.wire.process.environment import inherited

ROOT = Path(__file__).parents[3]


def rows_of(*probes: Probe, **environment: str) -> list[ProbeResult]:
    return run_probes(probes, on="cpu", environment=inherited() | environment, say=lambda _: None)


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


def test_without_a_gpu_the_self_check_names_the_cpu_option() -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    env.pop(gpu.ON, None)
    command = [sys.executable, "-P", "-m", "headrace", "doctor", "--gpu"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "HEADRACE_GPU_TESTS_ON=cpu" in done.stderr
