"""A run whose rollouts are episodes of an environment: played, scored, trained, killed, and in order."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.run.execute import BAD_INPUT
from headrace.wire.rundir.events import read_events
from tests.e2e.harness import DEADLINE_S, TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
TEMPLATE = (
    "{% for m in messages %}{{ '=' + m.content + '<end>' if m.role == 'assistant' else m.content }}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
TABLE = """
[environment]
name = "game:Sums"
path = "game"
slots = 4
max_turns = 3
max_turn_tokens = 3
episode_s = 100
"""
GAME = '''
class Sums:
    """Asks again until the answer begins with a digit that it likes."""

    def reset(self, task, rollout_id, attempt):
        self.turns, self.liked = 0, False
        return task["prompt"].rstrip("=")

    def step(self, message):
        self.turns += 1
        self.liked = message["content"][:1] in list("02468")
        note = {"turn_reward": 0.125, "metrics": {"asked": self.turns}}
        return note if self.liked else {"done": False, "messages": [{"role": "user", "content": "+0"}], **note}

    def reward(self, messages):
        return float(self.liked)
'''


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A tiny run of six steps in which every row is played."""
    made = TinyRun(tmp_path / "tiny", steps=6, replicas=1)
    file = made.folder / "model" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    (made.folder / "game").mkdir()
    (made.folder / "game" / "game.py").write_text(GAME)
    toml = (made.folder / "run.toml").read_text().replace('name = "length"', 'name = "environment"')
    toml = toml.replace("options = { target = 3 }", "").replace('component = "length"', 'component = "environment"')
    toml = toml.replace("max_tokens = 6", "max_tokens = 12").replace("correct_above = -0.5", "correct_above = 0.5")
    (made.folder / "run.toml").write_text(toml + TABLE)
    yield made
    made.close()


def test_episodes_are_trained_and_a_killed_worker_and_child_lose_none(run: TinyRun) -> None:
    run.start("--trainer.checkpoint-every", "100")
    run.wait_for_step(1)
    os.kill(run.pid("environment-0"), signal.SIGKILL)
    run.wait_for_step(3)
    assert kill_a_child(run.pid("environment-0")), "the worker had no child"
    line = run.finish()
    assert line["steps"] == 6
    verdict = run.check()
    assert verdict["groups"] == {"issued": 24, "trained": 24, "dropped": {}, "open": 0}, verdict
    files = sorted((run.run_dir / "rollouts").glob("step-*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == 96 and {row["replica_id"] for row in rows} == {"environment-0"}
    scored = [row for row in rows if row["reward"] is not None]
    assert {row["reward"] for row in scored} <= {0.0, 1.0} and {row["finish_reason"] for row in scored} >= {"stop"}
    # What the game said between two turns is there, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in scored]
    assert max(heard) > 0, "no episode had a second turn"
    trained = [(row["trained_tokens"], row["tokens"] - less) for row, less in zip(scored, heard, strict=True)]
    assert all(one == other for one, other in trained)
    assert all(step["logprob_gap_max"] <= 1e-4 for step in run.metrics())
    workers = {one["source"] for one in read_events(run.run_dir) if one["event"] == "group_generated"}
    assert len(workers) == 2 and all(one.startswith("environment-0-") for one in workers), workers


def kill_a_child(worker: int) -> bool:
    """Kills one process that plays episodes for the worker, found by its command line."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdecimal() else []
            plays = b"headrace.services.environment.child.main" in words and not words[0].endswith(b"bwrap")
            if plays and _is_under(folder, worker):
                os.kill(int(folder.name), signal.SIGKILL)
                return True
        except OSError:
            continue
    return False


def _is_under(folder: Path, ancestor: int) -> bool:
    """Whether a process descends from another."""
    while folder.name not in ("0", "1"):
        parent = folder.joinpath("stat").read_text().rpartition(") ")[2].split()[1]
        if int(parent) == ancestor:
            return True
        folder = Path("/proc") / parent
    return False


def test_an_environment_that_cannot_be_loaded_is_refused_at_the_start(run: TinyRun) -> None:
    command = [sys.executable, "-P", "-m", "headrace", "train", str(run.folder / "run.toml"), "--dry-run"]
    done = subprocess.run(
        [*command, "--run-dir", str(run.run_dir), "--environment.name", "game:Nobody"],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == BAD_INPUT, done.stdout + done.stderr
    assert "--environment.name: " in done.stderr and "game.py has no 'Nobody'" in done.stderr
    assert not run.run_dir.exists()
