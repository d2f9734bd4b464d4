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


LOOK = ("--environment", "--seed", 3)


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While there is this file, the environment stands still."""
    return tmp_path_factory.mktemp("seen") / "hold"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, hold: Path) -> Iterator[TinyRun]:
    """A long run, after its second step."""
    folder = tmp_path_factory.mktemp("seeing") / "tiny"
    made = played_run(folder, game=holding_game(hold), steps=2000, staleness=1)
    sees = f"--environment.folders={json.dumps([str(hold.parent)])}"
    calm = ("--environment.tool-s=90", "--eval.every=100000", "--trainer.batch-timeout-s=3000")
    made.start("--run.stale=wait", sees, *calm)
    try:
        made.wait_for_step(2)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def ended(live: TinyRun) -> TinyRun:
    """The same run, stopped. Tests behind the first that asks for it find no live run."""
    live.stop()
    return live


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


def test_status_names_what_an_episode_waits_for_and_a_live_run_plays_one_on_demand(live: TinyRun, hold: Path) -> None:
    run = live
    hold.touch()
    named = re.compile(r"environment-0 plays it: tiny/g\d+/\d waits for the environment's step, \d+ s")
    run.wait_until(lambda: bool(named.search(awaited(run))), "the trainer to name the episode and its wait")
    shown = said("status", run.run_dir)
    assert re.search(r"environment-0 .*waits for the environment's step \(tiny/g\d+/\d\)", shown), shown
    assert re.search(r"tiny/g\d+/\d on environment-0 waits for the environment's step, ", shown), shown
    (worker,) = result("status", run.run_dir)["orchestrator"]["environments"]
    assert worker["slots"] == 4 and worker["playing"] > 0 and worker["waits"][0]["kind"] == "environment"
    hold.unlink()
    step = run.steps()
    run.wait_for_step(step + 2)

    found: dict[str, Any] = result("generate", run.run_dir, *LOOK, "--prompt", "1+2=")
    first = next(one for one in found["episode"]["messages"] if one["turn"] == 0)
    assert found["episode"]["messages"][0]["content"] == "1+2" and first["versions"][0].startswith("1.")
    assert first["replica_id"] == "rollout-0" and len(found["logprobs"]) == len(found["token_ids"])
    counted = numbers(run)
    for name in ("turns_total", 'tokens_total{kind="read"', "episode_seconds_count", "episodes_by_length_total{"):
        assert f"headrace_environment_{name}" in counted, name


def test_the_life_of_an_episode_is_its_conversation(ended: TinyRun) -> None:
    check_conversation(said("explain", "g0/1", ended.run_dir))
    story = result("explain", "g0", ended.run_dir)
    assert [one["episode"]["turns"] > 0 for one in story["rollouts"]] == [True] * 4
