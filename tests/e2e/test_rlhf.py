"""The RLHF example in small: three stages that hand their models on, and a report of what was measured."""

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlhf"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

SMALL = {
    "SFT_OPTIONS": "--sft.steps=120",
    "REWARD_OPTIONS": "--reward_model.steps=90",
    # On-policy, so each run measures the same: over samples of older weights the estimate of the KL may be negative.
    "PPO_OPTIONS": "--run.max_steps=6 --batch.groups=32 --eval.every=6 --eval.prompts=32 --trainer.learning_rate=5e-4 "
    "--run.max_staleness=0 --rollout.deterministic=true",
}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.long
def test_each_stage_goes_on_from_the_one_before_and_all_are_measured(tmp_path: Path) -> None:
    env = os.environ | SMALL | {"HEADRACE": f"{sys.executable} -P -m headrace"}
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, str(EXAMPLE / "run.sh"), str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    logs = "".join(f"\n--- {path}\n{path.read_text()[-2000:]}" for path in tmp_path.glob("*/logs/*.log"))
    assert "== measured" in done.stdout, done.stdout + done.stderr + logs
    report = module("report")
    found = report.measure(tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == {key: round(value, 4) for key, value in found.items()}
    assert done.returncode == bool(report.failures(found))
    # So few steps prove that the chain holds together, and that each stage learns at all.
    assert found["sft_loss_after"] < 0.5 * found["sft_loss_before"]
    assert found["preference_accuracy"] > 0.65
    assert 0 <= found["kl_per_answer"] < found["kl_bound"]
    last = json.loads((tmp_path / "ppo" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 6 and math.isfinite(last["value_loss"]) and last["logprob_gap_max"] < 1e-3
    config = json.loads((tmp_path / "reward_model" / "export" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForSequenceClassification"]


def test_the_example_ranks_by_its_own_rule_with_few_errors(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(EXAMPLE / "data.py"), str(tmp_path)], check=True, timeout=60)
    quality = module("rewards").quality
    assert (quality("abcde", "dbeac"), quality("edcba", "dbeac"), quality("abcdd", "dbeac")) == (1.0, 0.0, -0.4)
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    right = [
        quality(pair["chosen"], pair["prompt"][:-1]) > quality(pair["rejected"], pair["prompt"][:-1]) for pair in pairs
    ]
    assert 0.9 < sum(right) / len(right) < 0.99
    rows = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    ordered = sum(quality(row["completion"], row["prompt"][:-1]) == 1 for row in rows) / len(rows)
    assert ordered < 0.02  # One of 120 orders: nobody shows the model what it is to learn.
