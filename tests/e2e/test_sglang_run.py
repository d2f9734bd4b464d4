"""The example with two real SGLang servers, as its first lines say to start it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.rundir.events import read_events
from headrace.wire.weights import make_snapshot
from tests.e2e.harness import ROOT
from tests.families import tiny_family
from tests.leftovers import left_running
from tests.sglang import sglang_venv

pytestmark = [pytest.mark.e2e, pytest.mark.sglang, pytest.mark.timeout(600)]
STEPS = 5
MOE_STEPS = 3
MARK = "HEADRACE_TEST_MARK"


def headrace(folder: Path, *arguments: str) -> dict[str, Any]:
    """The last line of a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {MARK: str(folder)},
        preexec_fn=die_with_parent,
        check=False,
    )
    logs = "".join(f"\n--- {path.name}\n{path.read_text()[-3000:]}" for path in folder.rglob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The finished run's folder and the command's last line."""
    venv, folder = sglang_venv(), tmp_path_factory.mktemp("sglang_run")
    example = str(ROOT / "examples" / "sglang_cpu" / "run.toml")
    run_dir = folder / "run"
    line = headrace(folder, "train", example, "--rollout.sglang.venv", str(venv), "--run-dir", str(run_dir), "--json")
    return run_dir, line


def test_both_servers_commit_every_version_and_agree_with_the_trainer(run: tuple[Path, dict[str, Any]]) -> None:
    run_dir, line = run
    assert line["steps"] == STEPS and line["rollouts"] == STEPS * 32
    assert set(line["versions_committed"]) == {"rollout-0", "rollout-1"}
    assert min(line["versions_committed"].values()) >= STEPS
    steps = [json.loads(text) for text in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert all(step["logprob_gap_max"] <= 1e-4 for step in steps) and line["logprob_gap_max"] <= 1e-4
    assert all(step["logprob_gap_tokens"] == step["completion_tokens"] for step in steps)
    assert all(step["kept_ids_mean"] > 1 for step in steps)
    assert left_running(str(run_dir.parent)) == []


def test_the_history_is_valid_and_the_export_equals_the_last_served_weights(run: tuple[Path, dict[str, Any]]) -> None:
    run_dir, _ = run
    verdict = headrace(run_dir.parent, "check", str(run_dir), "--json")
    assert verdict["ok"] and verdict["steps"] == STEPS
    served = [event for event in read_events(run_dir) if event["event"] == "weights_committed"]
    digests = {version: {e["digest"] for e in served if e["version"] == version} for version in range(STEPS + 1)}
    assert [len(digests[version]) for version in range(STEPS + 1)] == [1] * (STEPS + 1), "all served the same"
    assert digests[STEPS] != digests[0], "something was learned"
    model = AutoModelForCausalLM.from_pretrained(run_dir / "export", dtype=torch.float32)
    exported = make_snapshot(model.named_parameters(), dtype=torch.float32, bucket_bytes=512 * 2**20)
    assert digests[STEPS] == {exported.plan.weights_digest}
    assert verdict["weights_sha256"] == next(
        event["weights_sha256"] for event in read_events(run_dir) if event["event"] == "exported"
    )


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The same of a mixture of experts, whose checkpoint has other names than the trainer's memory, with one server."""
    venv, folder = sglang_venv(), tmp_path_factory.mktemp("sglang_moe")
    text = (ROOT / "examples" / "sglang_cpu" / "run.toml").read_text()
    example, dropped, rest = text.partition("[model.make]")
    assert dropped
    (folder / "run.toml").write_text(example + rest[rest.index("[data]") :])
    tokenizer = character_tokenizer("0123456789+=")
    write_model(folder / "model", tokenizer, Shape(), seed=1)
    # 40 is no multiple of 32: SGLang pads the experts' inner size on a CPU.
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "hidden_size": 64, "moe_intermediate_size": 40}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    tiny_family("qwen3_moe", **sizes, **ends).save_pretrained(folder / "model")
    changes = {
        "model.path": folder / "model",
        "data.path": ROOT / "examples" / "arithmetic" / "prompts.jsonl",
        "rollout.sglang.venv": venv,
        "rollout.replicas": 1,
        "orchestrator.first_replicas": 1,
        "run.max_steps": MOE_STEPS,
    }
    flags = [text for key, value in changes.items() for text in (f"--{key}", str(value))]
    run_dir = folder / "run"
    return run_dir, headrace(folder, "train", str(folder / "run.toml"), *flags, "--run-dir", str(run_dir), "--json")
