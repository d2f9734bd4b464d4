"""Episodes on two real SGLang servers: five steps, and what the servers keep of a conversation between its turns."""

import json
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.rundir import rollouts
from tests.e2e.episodes import played_run
from tests.sglang import sglang_venv

pytestmark = [pytest.mark.e2e, pytest.mark.sglang, pytest.mark.timeout(900)]
STEPS = 5
WORKER = "environment-0"
_PREFIX = re.compile(r'^headrace_environment_prefix_tokens_total\{.*kind="(\w+)".*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run at its end."""

    run_dir: Path
    line: dict[str, Any]
    verdict: dict[str, Any]
    prefix: dict[str, float]
    """The worker's count of prefix tokens, as it was last read."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    run = played_run(tmp_path_factory.mktemp("played") / "tiny", steps=STEPS, replicas=2, deterministic=False)
    config = run.folder / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 256}))
    prefix: dict[str, float] = {}
    run.start(
        *("--rollout.engine", "sglang", "--rollout.sglang.venv", str(sglang_venv()), "--model.dtype", "float32"),
        # Random weights say the end of a turn every dozen tokens: there is room for it, and for some turns.
        *("--environment.max-turn-tokens=40", "--environment.max-turns=6", "--rollout.sampling.max-tokens=120"),
    )
    try:
        run.wait_until(lambda: run.steps() >= STEPS or prefix_tokens(run.run_dir, prefix), "the last step", 800)
        line = run.finish()
        return Finished(run.run_dir, line, run.check(), prefix)
    finally:
        run.close()


def prefix_tokens(run_dir: Path, found: dict[str, float]) -> bool:
    """Reads what the worker has counted so far; False, for it is never the end."""
    try:
        port = json.loads((run_dir / "run" / f"{WORKER}.json").read_text())["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found.update((kind, float(count)) for kind, count in _PREFIX.findall(answer.read().decode()))
    except (OSError, ValueError, KeyError):  # It has not begun, or has ended.
        pass
    return False


def names(finished: Finished) -> list[str]:
    """Files of rollouts, one a step."""
    found = [path.name for path in (finished.run_dir / "rollouts").glob("step-*.parquet")]
    assert len(found) == STEPS
    return found


def test_episodes_from_both_servers_are_trained(finished: Finished) -> None:
    assert finished.line["steps"] == STEPS and finished.verdict["ok"]
    assert set(finished.line["versions_committed"]) == {"rollout-0", "rollout-1"}
    steps = [json.loads(text) for text in (finished.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [*range(1, STEPS + 1)]
    assert max(step["logprob_gap_max"] for step in steps) <= 1e-4
    files = [rollouts.read(finished.run_dir / "rollouts" / name, ["episode"]) for name in sorted(names(finished))]
    turns = [len(json.loads(text)["turn_ends"]) for file in files for text in file["episode"].to_pylist()]
    assert max(turns) > 1, "no episode had a second turn: nothing was read across a border"


def test_servers_reuse_the_cached_prefix_of_a_conversation(finished: Finished) -> None:
    assert finished.prefix["known"] > 1000
    assert finished.prefix["cached"] >= 0.9 * finished.prefix["known"]
