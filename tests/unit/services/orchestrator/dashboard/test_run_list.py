"""Runs beside this one: found, bounded, and never by a path."""

import json
import os
import threading
from pathlib import Path

import pytest

from headrace.services.orchestrator.dashboard.readers import run_list
from headrace.services.orchestrator.dashboard.readers.run_list import (
    config_rows,
    find_run,
    flat,
    run_folders,
    run_row,
)
from headrace.wire.api.runs import ConfigKey
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import jsonl
from tests.dashboard_run import write_run


def test_folders_that_are_runs_are_found_newest_first_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write_run(tmp_path / f"run-{number}", steps=2, rollouts=0)
        os.utime(tmp_path / f"run-{number}" / "config" / "run.toml", (number, number))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run-0")
    assert [one.name for one in run_folders(tmp_path)] == ["run-3", "run-2", "run-1", "run-0"]
    monkeypatch.setattr(run_list, "MOST", 2)
    assert [one.name for one in run_folders(tmp_path)] == ["run-3", "run-2"]


def test_a_folder_that_cannot_be_looked_at_is_passed_over(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, rollouts=0)
    (tmp_path / "other").mkdir()
    # As with a folder of somebody else's: asking for what is in it is an error of the operating system.
    (tmp_path / "other" / "config").symlink_to("x" * 300)
    with pytest.raises(OSError, match="too long"):
        (tmp_path / "other" / "config" / "run.toml").stat()
    assert [one.name for one in run_folders(tmp_path)] == ["run"]
    for number in range(2, 22):  # Some of them come before those that are there.
        (run / "events" / f"orchestrator-{number}.jsonl").symlink_to("gone")
    assert run_row(find_run(tmp_path, "run"), now=run.stat().st_mtime + 3600).state == "finished"


@pytest.mark.parametrize("name", ["metrics.jsonl", "evals.jsonl", "events/trainer-9.jsonl", "config/run.toml"])
def test_a_pipe_in_another_run_is_not_waited_for_and_reported_once(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", steps=2, rollouts=0)
    folder = find_run(tmp_path, "run")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    rows: list[str] = []

    def look() -> None:
        rows.extend(run_row(folder, now=0.0).state for _ in range(3))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(60)
    if name == "config/run.toml":  # `run_folders` leaves it out.
        assert rows == ["finished"] * 3 and run_folders(tmp_path) == []
    else:
        assert rows == ["unreadable"] * 3
        said = "".join(capfd.readouterr())
        assert said.count("run_unreadable") == 1 and str(run / name) in said


@pytest.mark.parametrize("name", ["..", "../run", ".", "", "run/../run", "/etc", "none", "link"])
def test_a_name_that_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run", steps=1, rollouts=0)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(ConfigError, match="there is no run"):
        find_run(tmp_path, name)


@pytest.mark.parametrize(("state", "shown"), [("finished", "finished"), ("stopped", "stopped"), ("killed", "stopped")])
def test_a_row_tells_how_the_run_ended_and_how_far_it_came(tmp_path: Path, state: str, shown: str) -> None:
    run = write_run(tmp_path / "run", steps=40, rollouts=0, state=state, run_id="arith")
    row = run_row(find_run(tmp_path, "run"), now=run.stat().st_mtime + 3600)
    assert (row.name, row.id, row.state, row.steps) == ("run", "arith", shown, 40)
    assert row.reward_mean is not None and 0 < row.reward_mean < 1
    assert row.accuracy is not None and 0 < row.accuracy < 1
    assert run_row(find_run(tmp_path, "run"), now=run.stat().st_mtime).state == (
        "running" if state == "killed" else shown
    )


def test_a_run_without_anything_yet_has_a_row(tmp_path: Path) -> None:
    (tmp_path / "new" / "config").mkdir(parents=True)
    (tmp_path / "new" / "config" / "run.toml").write_text("damaged = ")
    row = run_row(find_run(tmp_path, "new"), now=0.0)
    assert row.steps == 0 and row.reward_mean is None and row.accuracy is None


def test_the_last_whole_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert jsonl.last(path) == {}
    path.write_text(json.dumps({"step": 1}) + "\n" + json.dumps({"step": 2}) + "\n" + '{"step": 3, "a')
    assert jsonl.last(path) == {"step": 2}


def test_configs_are_compared_key_by_key_those_that_differ_first() -> None:
    left = flat({"run": {"id": "a", "seed": 0}, "rollout": {"sampling": {"top_p": 1.0}}, "list": [1, 2]})
    right = flat({"run": {"id": "b", "seed": 0}, "list": [1, 2]})
    rows = config_rows([left, right])
    assert rows[0] == ConfigKey(key="rollout.sampling.top_p", values=(1.0, None), differs=True)
    assert [row.key for row in rows if row.differs] == ["rollout.sampling.top_p", "run.id"]
    assert ConfigKey(key="list", values=([1, 2], [1, 2]), differs=False) in rows
