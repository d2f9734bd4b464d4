"""Runs beside this one: found, bounded, and never by a path."""

import os
from pathlib import Path

import pytest

from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers import run_list
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.readers.run_list import (
    config_rows,
    find_run,
    flat,
    run_folders,
    run_row,
    run_rows,
)
from headrace.wire.api.runs import ConfigKey
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
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


@pytest.mark.parametrize("name", ["..", "../run", ".", "", "run/../run", "/etc", "none", "link"])
def test_a_name_that_is_not_a_run_is_rejected(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run", steps=1, rollouts=0)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(ConfigError, match="there is no run"):
        find_run(tmp_path, name)


@pytest.mark.parametrize(("state", "shown"), [("finished", "finished"), ("stopped", "stopped"), ("killed", "stopped")])
def test_a_row_of_the_run_list_shows_the_outcome_and_the_last_step(tmp_path: Path, state: str, shown: str) -> None:
    run = write_run(tmp_path / "run", steps=40, rollouts=0, state=state, run_id="arith")
    row = run_row(find_run(tmp_path, "run"), now=run.stat().st_mtime + 3600)
    assert (row.name, row.id, row.state, row.steps) == ("run", "arith", shown, 40)
    assert row.reward_mean is not None and 0 < row.reward_mean < 1
    assert row.accuracy is not None and 0 < row.accuracy < 1
    assert run_row(find_run(tmp_path, "run"), now=run.stat().st_mtime).state == (
        "running" if state == "killed" else shown
    )


def test_a_run_with_a_log_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    for name in ("good", "link", "pipe"):
        write_run(tmp_path / name, steps=1, rollouts=0)
    (tmp_path / "link" / "events" / "orchestrator-a.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe" / "events" / "orchestrator-000009.00000000.jsonl")
    rows = run_rows(run_folders(tmp_path), 0.0, tmp_path / "good", "finished")
    assert [row.name for row in rows] == ["good"]


def test_a_stage_without_an_orchestrator_is_running_while_its_metrics_grow(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "sft")
    run.run_toml.parent.mkdir(parents=True)
    run.run_toml.write_text('[run]\nid = "sft"\n')
    run.export.mkdir()
    run.metrics.write_text('{"step":1,"t":20.0}\n')
    folder = find_run(tmp_path, "sft")
    written = run.metrics.stat().st_mtime
    assert [run_row(folder, written + later).state for later in (1, 31)] == ["running", "finished"]
    ended = EndedRun(Files.of(tmp_path / "sft", tmp_path))
    assert (ended.status().state, ended.status().run.ended, ended.status().averages) == ("running", None, {})
    assert ended.status().bottleneck.text == "The run is running."
    os.utime(run.metrics, (20, 20))
    assert ended.status().state == "finished"
    run.events.mkdir()
    os.mkfifo(run.events / "orchestrator-000001.00000000.jsonl")
    assert ended.status().state == "finished"


def test_configs_are_compared_by_key_with_differing_keys_first() -> None:
    left = flat({"run": {"id": "a", "seed": 0}, "rollout": {"sampling": {"top_p": 1.0}}, "list": [1, 2]})
    right = flat({"run": {"id": "b", "seed": 0}, "list": [1, 2]})
    rows = config_rows([left, right])
    assert rows[0] == ConfigKey(key="rollout.sampling.top_p", values=(1.0, None), differs=True)
    assert [row.key for row in rows if row.differs] == ["rollout.sampling.top_p", "run.id"]
    assert ConfigKey(key="list", values=([1, 2], [1, 2]), differs=False) in rows
