"""The verbs on real runs: the demo in small, GSM8K with a made-up model, stop and resume, nothing left running."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import verbs
from tests.leftovers import left_running

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gsm8k" / "run.toml"
MARK = "HEADRACE_TEST_MARK"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SMALL_DEMO = (
    "--run.max-steps=4",
    "--batch.groups=4",
    "--batch.group-size=4",
    "--sft.steps=10",
    "--eval.every=2",
    "--eval.prompts=16",
    "--trainer.checkpoint-every=2",
)

GSM8K_ROWS = [
    {
        "question": f"Anna sold {n} clips in April, and twice as many in May. How many clips did Anna sell?",
        "answer": f"In May Anna sold {n}*2 = <<{n}*2={2 * n}>>{2 * n} clips.\n#### {3 * n}",
    }
    for n in range(1, 41)
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "headrace", *arguments]


def environment(mark: Path) -> dict[str, str]:
    return {**os.environ, MARK: str(mark)}


def result(folder: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The JSON line of a command that ends with `status` and leaves no process behind."""
    done = subprocess.run(
        command(*arguments), cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr + logs(folder)
    assert left_running(str(folder)) == []
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def logs(folder: Path) -> str:
    return "".join(f"\n--- {path}\n{path.read_text()[-3000:]}" for path in sorted(folder.rglob("*.log")))


def in_order(folder: Path, run_dir: Path) -> dict[str, Any]:
    verdict = result(folder, "check", str(run_dir), "--json")
    assert verdict["ok"] and verdict["problems"] == []
    return verdict


def test_the_demo_runs_to_its_end_and_its_history_is_in_order(tmp_path: Path) -> None:
    run_dir = tmp_path / "demo"
    summary = result(tmp_path, "demo", "--json", "--run-dir", str(run_dir), *SMALL_DEMO)
    assert summary["steps"] == 4 and summary["rollouts"] == 64
    assert 0 <= summary["eval_before"] <= 1 and 0 <= summary["eval_after"] <= 1
    assert summary["logprob_gap_max"] < 1e-4
    assert summary["run_dir"] == str(run_dir)
    verdict = in_order(tmp_path, run_dir)
    assert verdict["groups"]["trained"] == 16 and verdict["steps"] == 4 and len(verdict["weights_sha256"]) == 64
    shown = result(tmp_path, "status", str(run_dir), "--json")
    assert shown["steps"] == 4 and shown["supervisor"] is None and len(shown["eval"]) >= 2
    assert (run_dir / "rollouts" / "step-000001.parquet").is_file()


def gsm8k(folder: Path) -> Path:
    """GSM8K's own train file, from the folder that HEADRACE_GSM8K names; rows of its shape where there is none."""
    if given := os.environ.get("HEADRACE_GSM8K"):
        return Path(given) / "train.jsonl"
    data = folder / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in GSM8K_ROWS))
    return data


@pytest.mark.long
def test_gsm8k_trains_on_any_model_folder_and_exports_one(tmp_path: Path) -> None:
    data = gsm8k(tmp_path)
    made = ("--tokenizer-from", data, "--columns", "question,answer", "--out", tmp_path / "model")
    verbs.said("make-model", *made)
    small = ("--run.max-steps=3", "--batch.groups=2", "--batch.group-size=4", "--rollout.sampling.max-tokens=16")
    small += ("--data.eval-size=4", "--data.limit=200", "--model.path=model", f"--data.path={data}")
    summary = result(tmp_path, "train", str(EXAMPLE), "--json", "--run-dir", "run", "--data.subset", "", *small)
    assert summary["steps"] == 3 and summary["rollouts"] == 24
    assert verbs.result("check", tmp_path / "run")["problems"] == []
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "export")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "export")
    ids = tokenizer("How many clips", return_tensors="pt").input_ids
    assert model.generate(ids, max_new_tokens=4, do_sample=False).shape[1] > ids.shape[1]
