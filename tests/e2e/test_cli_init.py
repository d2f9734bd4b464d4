"""`headrace init`: what it writes is a run that starts."""

import json
from pathlib import Path
from typing import get_args

import pytest

from headrace.cli.init_guess import Kind
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_run_of_each_kind_begins_with_nothing(kind: str, tmp_path: Path) -> None:
    made = result("init", "--kind", kind, "--out", tmp_path / "my run")
    assert made["kind"] == kind and all(Path(file).is_file() for file in made["files"])
    found = result("train", tmp_path / "my run" / "run.toml", "--dry-run", "--run-dir", tmp_path / "run")
    held_out = found.get("eval_prompts", found.get("eval_examples"))
    assert held_out == 25 and found.get("prompts", found.get("examples")) == made["rows"] - held_out


def test_a_reward_of_ones_own_on_ones_own_columns_trains(tmp_path: Path) -> None:
    rows = [{"question": f"say {word}", "solution": word} for word in ("one", "two", "three", "four")]
    data = tmp_path / "data" / "rows.jsonl"
    data.parent.mkdir()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "mine"
    assert result("init", data, "--out", out)["kind"] == "reward"
    short = ("--run.max-steps", 2, "--rollout.replicas", 1)
    summary = result("train", out / "run.toml", "--run-dir", tmp_path / "run", *short)
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert summary["steps"] == len(steps) == 2 and all(0 < step["reward_mean"] < 1 for step in steps)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert f"{data} takes no files (" in said("init", data, "--out", data, status=2)
    (out / "run.toml").unlink()
    assert f"{out / 'reward.py'} is there already" in said("init", data, "--out", out, status=2)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == {
        path: text for path, text in before.items() if path.name != "run.toml"
    }
