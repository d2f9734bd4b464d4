"""Episodes of a run as people see them: while they wait, in the life of a rollout, and played for a look."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.episodes import holding_game, played_run
from tests.e2e.harness import TinyRun
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A long run whose environment stands still while there is a file."""
    (tmp_path / "seen").mkdir()
    made = played_run(tmp_path / "tiny", game=holding_game(tmp_path / "seen" / "hold"), steps=2000, staleness=1)
    yield made
    made.close()


def numbers(run: TinyRun) -> str:
    port = json.loads((run.run_dir / "run" / "environment-0.json").read_text())["http_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def awaited(run: TinyRun) -> str:
    return str(run.status().get("trainer", {}).get("waiting_for", ""))


def check_conversation(text: str) -> None:
    assert re.search(r"^policy, turn 1; tokens 0 to \d+ sampled; logprob mean -", text, re.MULTILINE), text
    assert re.search(r"^ended by (stop|turn_limit|length); \d turns, \d+ tokens sampled", text, re.MULTILINE), text


def test_episodes_are_seen_while_they_wait_and_afterwards(run: TinyRun, tmp_path: Path) -> None:
    hold = tmp_path / "seen" / "hold"
    sees = f"--environment.folders={json.dumps([str(hold.parent)])}"
    calm = ("--environment.tool-s=90", "--eval.every=100000", "--trainer.batch-timeout-s=3000")
    run.start("--run.stale=wait", sees, *calm)
    run.wait_for_step(2)
    hold.touch()
    run.wait_until(lambda: "environment-0 plays it: tiny/g" in awaited(run), "the trainer to name the episode")
    assert re.search(r"waits for the environment's step, \d+ s", awaited(run)), awaited(run)
    shown = said("status", run.run_dir)
    assert re.search(r"environment-0 .*waits for the environment's step \(tiny/g\d+/\d\)", shown), shown
    assert re.search(r"tiny/g\d+/\d on environment-0 waits for the environment's step, ", shown), shown
    (worker,) = result("status", run.run_dir)["orchestrator"]["environments"]
    assert worker["slots"] == 4 and worker["playing"] > 0 and worker["waits"][0]["kind"] == "environment"
    hold.unlink()
    step = run.steps()
    run.wait_for_step(step + 2)

    look = ("generate", run.run_dir, "--environment", "--seed", 3)
    live: dict[str, Any] = result(*look, "--prompt", "1+2=")
    first = next(one for one in live["episode"]["messages"] if one["turn"] == 0)
    assert live["episode"]["messages"][0]["content"] == "1+2" and first["versions"][0].startswith("1.")
    assert first["replica_id"] == "rollout-0" and len(live["logprobs"]) == len(live["token_ids"])
    counted = numbers(run)
    for name in ("turns_total", 'tokens_total{kind="read"', "episode_seconds_count", "episodes_by_length_total{"):
        assert f"headrace_environment_{name}" in counted, name

    run.stop()
    lives = said("explain", "g0/1", run.run_dir)
    check_conversation(lives)
    story = result("explain", "g0", run.run_dir)
    assert [one["episode"]["turns"] > 0 for one in story["rollouts"]] == [True] * 4
    ended = said(*look, "--temperature", 0)
    check_conversation(ended)
    assert "on here" in ended
    again = result(*look, "--temperature", 0, "--task", '{"prompt": "1+2="}')
    assert again["episode"]["messages"][0]["content"] == "1+2"
    for words, complaint in (
        (("--task", "[1]"), "not a JSON object"),
        (("--held-out", "999"), "no held-out task 999"),
        (("--prompt", "x", "--stop", "y"), "plays a task"),
    ):
        assert complaint in said(*look, *words, status=2)
