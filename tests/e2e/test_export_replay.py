"""What can be had of a run that has ended: its model, its steps once more, its answers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.undisturbed import Undisturbed
from tests.verbs import ended as done
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def ended(undisturbed_run: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the session's finished run, to write into."""
    copy = tmp_path_factory.mktemp("ended") / "run"
    shutil.copytree(undisturbed_run.run_dir, copy)
    return copy


def refused(*words: Any) -> str:
    """The complaint of a command that is bad input."""
    return said(*words, "--json", status=2)


def test_a_checkpoint_becomes_a_model_that_transformers_loads(ended: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from headrace.wire.weights import weights_sha256

    found = result("export", ended)
    assert found["path"] == str(ended / "exports" / f"step-{found['step']:06d}")
    model = AutoModelForCausalLM.from_pretrained(found["path"])
    assert weights_sha256(model.named_parameters()) == found["weights_sha256"]
    assert AutoTokenizer.from_pretrained(found["path"])("12+34=")["input_ids"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert "contains files that are not" in refused("export", ended, "--out", tmp_path / "other")
    assert "no checkpoint of step 1 " in refused("export", ended, "--step", 1)


def test_a_replay_reproduces_the_weights_bit_for_bit_unless_the_rate_changes(
    ended: Path, undisturbed_run: Undisturbed, tmp_path: Path
) -> None:
    same = result("replay", ended, "--out", tmp_path / "same", "--export")
    events = [event for event in read_events(ended) if event.get("event") == "step_done"]
    known = {event["step"]: event["weights_digest"] for event in events}
    assert same["weights_digest"] == known[same["last"]]
    assert same["as_in_run"] == same["last"] - same["first"] + 1
    rows = [json.loads(line) for line in (tmp_path / "same" / "metrics.jsonl").read_text().splitlines()]
    of_run = {row["step"]: row for row in undisturbed_run.metrics()}
    assert rows and all(row["loss"] == of_run[row["step"]]["loss"] for row in rows)
    assert (tmp_path / "same" / "export" / "model.safetensors").is_file()

    other = result("replay", ended, "--out", tmp_path / "other", "--trainer.learning-rate", "1e-5")
    assert other["differs_from"] == same["first"] and other["weights_digest"] != same["weights_digest"]


def test_a_fork_repeats_the_run_from_its_step_bit_for_bit_and_leaves_it_as_it_was(
    undisturbed_run: Undisturbed, tmp_path: Path
) -> None:
    source, fork = undisturbed_run.run_dir, tmp_path / "fork"
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*") if not path.is_socket()}
    result("train", "--fork", source, "--from-step", 7, "--run-dir", fork)
    assert before == {path: path.stat().st_mtime_ns for path in source.rglob("*") if not path.is_socket()}
    ends = [
        [(event["step"], event["weights_digest"]) for event in read_events(folder) if event.get("event") == "step_done"]
        for folder in (source, fork)
    ]
    assert sorted(ends[0]) == sorted(ends[1])
    assert fork.stat().st_mode & 0o077 == 0
    verdict = result("check", fork)
    assert verdict["ok"] and verdict["steps"] == 8 and f"forked from {source} after step 7" in verdict["notes"]

    link = fork / "config" / "fork.json"
    link.write_text(json.dumps(json.loads(link.read_text()) | {"step": 6}))
    assert "is not the one at which the run was forked" in done("check", fork).out
    assert "--from-step is 1 to 8" in refused("train", "--fork", source, "--from-step", 9, "--run-dir", tmp_path / "x")
    assert "run.seed" in refused("train", "--fork", source, "--run-dir", tmp_path / "x", "--run.seed", 99)
    assert "cannot be reached" in refused("train", "--fork", source, "--from-step", 1, "--run-dir", tmp_path / "x")
    shutil.copytree(source, tmp_path / "requeued", ignore=shutil.ignore_patterns("run"))
    (log,) = (tmp_path / "requeued" / "events").glob("orchestrator-*.jsonl")
    log.write_text(json.dumps({"t": 1.0, "event": "requeued_as", "group_index": 3}) + "\n" + log.read_text())
    assert "(group 3)" in refused("train", "--fork", tmp_path / "requeued", "--run-dir", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_an_impossible_replay_lists_the_possible_ones_and_writes_nothing(ended: Path, tmp_path: Path) -> None:
    out = tmp_path / "replay"
    complaint = refused("replay", ended, "--out", out, "--steps", "1:1")
    assert "what can be replayed is" in complaint and "checkpoint" in complaint
    assert "--rollout.replicas" in refused("replay", ended, "--out", out, "--rollout.replicas", 2)
    assert not out.exists()
