"""What a run directory came to."""

import json
from pathlib import Path

import pytest

from headrace.inspect.differences import differences
from headrace.inspect.runs.facts import facts_of, runs_in
from headrace.supervisor.lock import RunLock
from headrace.wire.config.kept import flatten
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog


def make(folder: Path, steps: int = 0, *, stage: str = "rl") -> Path:
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "run.toml").write_text(f'[run]\nid = "r"\nstage = "{stage}"\nmax_steps = 30\n')
    rows = ({"step": step, "reward_mean": float(step), "t": 1e10 + step} for step in range(1, steps + 1))
    if steps:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def log(folder: Path, *events: str, life: str = "a") -> None:
    of = EventLog(folder, "orchestrator", life)
    for event in events:
        of.append(event, group_index=1)
    of.close()


def test_numbers_are_means_of_the_last_ten_steps(tmp_path: Path) -> None:
    run = make(tmp_path / "run", 30)
    accuracies = (0.25, 0.75, None, 0.5)
    evals = [{"version": version, "accuracy": accuracy} for version, accuracy in enumerate(accuracies)]
    (run / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evals))
    facts = facts_of(run)
    assert (facts.steps, facts.max_steps, facts.last["reward_mean"]) == (30, 30, 25.5)
    assert (facts.eval_before, facts.eval_after, facts.eval_best) == (0.25, 0.5, 0.75)
    assert "t" not in facts.last and facts.id == "r"


def test_a_runs_state_follows_from_its_lock_and_last_event(tmp_path: Path) -> None:
    prepared = make(tmp_path / "prepared")
    assert facts_of(prepared).state == "prepared" and facts_of(prepared).last == {}
    finished = make(tmp_path / "finished", 3)
    log(finished, "issued", "run_ended")
    assert facts_of(finished).state == "finished"
    stopped = make(tmp_path / "stopped", 3)
    log(stopped, "issued", "run_stopped")
    assert facts_of(stopped).state == "stopped"
    killed = make(tmp_path / "killed", 3)
    log(killed, "run_ended", "issued")
    assert facts_of(killed).state == "stopped"
    lock = RunLock(killed)
    assert facts_of(killed).state == "running"
    lock.release()
    offline = make(tmp_path / "sft", 3, stage="sft")
    assert facts_of(offline).state == "stopped" and facts_of(offline).max_steps is None
    (offline / "export").mkdir()
    assert facts_of(offline).state == "finished"


def test_a_folder_of_runs_is_listed_and_other_folders_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path / "one")
    make(tmp_path / "two")
    (tmp_path / "notes").mkdir()
    unread: list[str] = []
    assert {facts.name for facts in runs_in(tmp_path, unread.append)} == {"one", "two"} and not unread
    with pytest.raises(ConfigError, match="there is no folder"):
        list(runs_in(tmp_path / "nowhere", unread.append))
    with pytest.raises(ConfigError, match="is not a run directory"):
        facts_of(tmp_path / "notes")


def test_configs_differ_by_key_also_within_lists_of_tables() -> None:
    one = {"run": {"seed": 1, "id": "a"}, "reward": {"scorers": [{"name": "math"}]}, "betas": [0.9, 0.99]}
    other = {"run": {"seed": 2, "id": "a"}, "reward": {"scorers": [{"name": "math"}, {"name": "code"}]}, "betas": [0.9]}
    assert [(each.key, each.values) for each in differences([one, other])] == [
        ("run.seed", (1, 2)),
        ("betas", ([0.9, 0.99], [0.9])),
        ("reward.scorers.1.name", (None, "code")),
    ]
    assert differences([one, one, one]) == []
    assert dict(flatten(one))["reward.scorers.0.name"] == "math"
