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

from tests.e2e.harness import ROOT
from tests.sglang import sglang_venv
from wire.events import read_events
from wire.lifecycle import die_with_parent
from wire.weights import make_snapshot

pytestmark = [pytest.mark.e2e, pytest.mark.sglang, pytest.mark.timeout(600)]
STEPS = 5
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


def left_running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


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
    assert left_running(str(run_dir.parent)) == []


def test_the_history_is_in_order_and_the_export_is_what_was_served_last(run: tuple[Path, dict[str, Any]]) -> None:
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
