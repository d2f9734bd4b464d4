"""The example of an agent as it stands: two stages that hand the model on, a report of what was measured."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]
EXAMPLE = Path(__file__).parents[2] / "examples" / "tools"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def trained(folder: Path) -> str:
    """Runs the example; returns what it wrote to stdout."""
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, str(EXAMPLE / "run.sh"), str(folder)],
        # At staleness 0 each sampled token is compared with the trainer's logprob of it.
        env=os.environ | {"HEADRACE": f"{sys.executable} -P -m headrace", "RL_OPTIONS": "--run.max_staleness=0"},
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    logs = "".join(f"\n--- {path}\n{path.read_text()[-2000:]}" for path in folder.glob("*/logs/*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
    return done.stdout


def test_a_model_that_guesses_learns_to_ask_its_tools(tmp_path: Path) -> None:
    said = trained(tmp_path)
    report = module("report")
    found = report.measure(tmp_path)
    assert json.loads(said.splitlines()[-1]) == {key: round(value, 6) for key, value in found.items()}
    assert not report.failures(found) and report.failures(found | {"right_after": 0.5})
    files = sorted((tmp_path / "rl" / "rollouts").glob("step-*.parquet"))
    last = pq.read_table(files[-1]).to_pylist()
    # Episodes of three turns: what the tools said stands between, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in last]
    assert sum(count > 0 for count in heard) > len(last) / 2
    assert all(row["tokens"] - count == row["trained_tokens"] for row, count in zip(last, heard, strict=True))
    assert max(row["tokens"] for row in last) < 120
