"""Rewards in whole runs: replicas, outages, abstentions; and scorers over a file, without a run."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

REWARDS = """
import pathlib, time
OUT = pathlib.Path(__file__).with_name("out")
CHANGED = pathlib.Path(__file__).with_name("changed")
SLOW = pathlib.Path(__file__).with_name("slow")

def throws(completion, answer, **_):
    return 1 / 0

def polite(completion, answer, **_):
    time.sleep(0.1 if SLOW.exists() else 0)
    return 0.1 * len(completion) / (5 if CHANGED.exists() else 1)

def picky(completion, answer, **_):
    time.sleep(0.1 if SLOW.exists() else 0)
    if OUT.exists():
        raise ConnectionError("the annotators are at lunch")
    return float("nan") if completion[:1] in "01234" else -0.1 * len(completion)
"""


def arguments_of(run: TinyRun, scorer: str) -> list[str]:
    scorers = json.dumps([{"name": f"my_rewards:{scorer}", "label": "mine", "range": [-10, 0]}])
    return [f"--reward.scorers={scorers}", f"--reward.path={run.folder}", "--eval.component=mine"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TinyRun]]:
    runs: list[TinyRun] = []

    def begin(scorer: str, *arguments: str, slow: bool = False, **shape: Any) -> TinyRun:
        """`slow`: a step takes more than a second until `hurry`, so the run outlasts what the test does to it."""
        run = TinyRun(tmp_path / f"run-{len(runs)}", replicas=1, **shape)
        runs.append(run)
        (run.folder / "my_rewards.py").write_text(REWARDS)
        if slow:
            (run.folder / "slow").touch()
        run.start(*arguments_of(run, scorer), *arguments)
        return run

    yield begin
    for run in runs:
        run.close()


def hurry(run: TinyRun) -> None:
    (run.folder / "slow").unlink()


def test_a_scorer_that_is_down_holds_the_run_and_abstentions_are_left_out_and_counted(
    start: Callable[..., TinyRun],
) -> None:
    run = start("picky", slow=True, steps=8, staleness=1, deterministic=False)
    run.wait_for_step(2)
    (run.folder / "out").touch()
    run.wait_until(lambda: "scorer_down" in run.logs(), "the circuit to open")
    held = run.steps()
    (run.folder / "out").unlink()
    hurry(run)
    line = run.finish()
    assert line["steps"] == 8 and held < 8
    assert sum(step["abstained"] for step in run.metrics()) > 0
    assert all(math.isfinite(step["loss"]) for step in run.metrics())
    dropped = run.check()["groups"]["dropped"]
    assert set(dropped) <= {"abstained", "run_ended", "stale"}, dropped


def test_why_names_the_component_whose_scorer_changed_in_the_middle_of_the_run(start: Callable[..., TinyRun]) -> None:
    scorers = [{"name": "length", "options": {"target": 3}}, {"name": "my_rewards:polite", "label": "polite"}]
    run = start("polite", f"--reward.scorers={json.dumps(scorers)}", "--eval.component=polite", slow=True, steps=14)
    run.wait_for_step(8)
    (run.folder / "changed").touch()
    hurry(run)
    run.finish()
    found = result("why", run.run_dir)
    assert found["chosen"] == "rewards/polite/mean fell most" and found["step"] > 8
    first = found["rows"][0]
    assert (first["measure"], first["column"]) == ("rewards/polite/mean", "") and first["since"] == found["step"]
    example = first["examples_now"][0]
    assert example["value"] < first["before"] and example["id"] in said("explain", example["id"], run.run_dir)
    assert f"step {found['step']} against steps" in said("why", run.run_dir, found["step"])


def score(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "headrace", "score", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_score_runs_a_scorer_over_a_file_and_shows_its_bug(tmp_path: Path) -> None:
    pairs = [
        {"prompt": "6*7", "completion": "so it is \\boxed{42}", "answer": "42"},
        {"prompt": "6*7", "completion": "The answer is 43.", "answer": "42"},
        {"prompt": "half", "completion": "\\boxed{\\frac{1}{2}}", "answer": "0.5"},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    files = ("--input", "pairs.jsonl", "--output", "scores.jsonl")
    done = score(tmp_path, "--reward", "math", *files, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [line["score"] for line in lines] == [1.0, 0.0, 1.0]
    assert json.loads(done.stdout.splitlines()[-1])["scored"] == 3

    (tmp_path / "mine.py").write_text("def score(completion, scale=1, **_):\n    return len(completion) * scale\n")
    done = score(tmp_path, "--reward", "mine:score", "--option", "scale=2", *files)
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[0])
    assert first["score"] == 2 * len(pairs[0]["completion"])

    (tmp_path / "mine.py").write_text(REWARDS)
    done = score(tmp_path, "--reward", "mine:throws", *files)
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr and "mine.py:" in done.stderr
    assert done.stderr.count("Traceback") == 1 and "return 1 / 0" in done.stderr


def test_a_bug_of_a_scorer_ends_the_run_at_once_with_file_line_and_traceback(start: Callable[..., TinyRun]) -> None:
    run = start("throws", steps=4)
    assert run.process is not None
    run.process.wait(DEADLINE_S)
    said = (run.folder / "stderr.log").read_text()
    line = 1 + REWARDS.splitlines().index("    return 1 / 0")
    assert run.process.returncode == 1, said
    assert f"ZeroDivisionError: division by zero ({run.folder}/my_rewards.py:{line})" in said
    assert "first 3 groups" in said and "is down" not in said
    assert said.count("Traceback") == 1 and "return 1 / 0" in said
    log = (run.run_dir / "logs" / "reward-0.log").read_text()
    assert log.count("scorer_raised") == 1
