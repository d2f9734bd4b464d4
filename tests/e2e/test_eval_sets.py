"""Two evaluation sets through real processes, the orchestrator killed while an evaluation is under way."""

import json
from pathlib import Path

import pytest

from headrace.wire.rundir import rollouts
from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.warm.start import python, start

pytestmark = pytest.mark.e2e
SETS = """
[reward.tasks.exact]
[[reward.tasks.exact.scorers]]
name = "exact_match"
[[eval]]
name = "long"
every = 2
prompts = 8
k = 2
greedy = false
deadline_s = 100
[[eval]]
name = "hard"
path = "hard.jsonl"
columns = { prompt = "q" }
task = "exact"
first = false
k = 3
max_tokens = 2
deadline_s = 100
"""


def test_two_sets_are_evaluated_by_scorers_of_their_own_over_a_killed_orchestrator(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", steps=2, replicas=1)
    config = run.folder / "run.toml"
    before, _, rest = config.read_text().partition("[eval]")
    config.write_text(before + SETS + rest[rest.index("[broker]") :])
    (run.folder / "hard.jsonl").write_text(
        "".join(json.dumps({"q": f"{n}+1=", "answer": int(n) + 1}) + "\n" for n in "123")
    )
    run.start()
    try:
        run.wait_until((run.run_dir / "run" / "reward-0.json").exists, "the reward service")
        run.hold_rollouts_back()
        assert "version 0" in run.status()["evaluating"]
        run.kill("orchestrator")
        run.go_on("reward-0")
        run.finish()
    finally:
        run.close()
    first, last = map(json.loads, (run.run_dir / "evals.jsonl").read_text().splitlines())
    assert (first["version"], first["long/prompts"], "hard/prompts" in first) == (0, 8, False)
    assert (last["version"], last["long/prompts"], last["hard/prompts"], last["hard/missing"]) == (2, 8, 3, 0)
    assert last["long/rewards/length/mean"] == last["long/reward_mean"] and "long/accuracy" not in last
    assert "hard/rewards/exact_match/mean" in last and last["hard/accuracy"] == last["hard/reward_mean"]
    for row, size in ((first, 16), (last, 25)):
        path = rollouts.rollout_file(run.run_dir / "evaluations", row["version"])
        kept = rollouts.read(path, ("set", "reward", "tokens")).to_pylist()
        rewards = [one["reward"] for one in kept if one["set"] == "long"]
        assert len(kept) == size and sum(rewards) / len(rewards) == pytest.approx(row["long/reward_mean"])
        assert all(one["tokens"] <= 2 for one in kept if one["set"] == "hard")
    command = python("headrace", "eval", run.run_dir, "--run-dir", tmp_path / "again", "--json")
    with (tmp_path / "again.out").open("w") as out, (tmp_path / "again.err").open("w") as err:
        status = start(command, out=out, err=err).wait(DEADLINE_S)
    assert status == 0, (tmp_path / "again.err").read_text()
    again = json.loads((tmp_path / "again.out").read_text().splitlines()[-1])
    assert again["version"] == 0 and again["long/prompts"] == 8
    assert again["hard/reward_mean"] == last["hard/reward_mean"] and again["hard/prompts"] == 3
    assert not (tmp_path / "again" / "export").exists() and not (tmp_path / "again" / "metrics.jsonl").exists()
