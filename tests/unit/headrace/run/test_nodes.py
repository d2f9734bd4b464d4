"""What `headrace train` and `headrace join` ask of a trainer on several machines."""

import json
import os
from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve
from headrace.inspect.output import Output
from headrace.run.joining.nodes import check_nodes, ready_s, start_notes
from headrace.run.joining.trainer_node import join_node, node_settings, plan_node
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.supervisor.lock import RunLock
from headrace.wire.errors import ConfigError
from tests.verbs import said


def config(folder: Path, text: str) -> Resolved:
    path = folder / "run.toml"
    path.write_text(f'[data]\npath = "rows.jsonl"\n{text}')
    return resolve(path)


def run_dir(folder: Path, settings: TrainerSettings | StageSettings) -> Path:
    made = folder / "run" / "config"
    made.mkdir(parents=True)
    stage = settings.run.stage
    config(made, f'[run]\nstage = "{stage}"\n')
    (made / "trainer.json").write_text(settings.model_dump_json())
    return made.parent


def test_several_machines_need_a_place_to_meet_and_time_for_it(tmp_path: Path) -> None:
    resolved = config(tmp_path, "[trainer]\nranks = 4\nnodes = 2\n")
    with pytest.raises(ConfigError, match=r"run.toml:\d+: \[trainer\] nodes: 2 machines need trainer.rendezvous"):
        check_nodes(resolved)
    check_nodes(config(tmp_path, ""))
    met = config(tmp_path, '[trainer]\nranks = 4\nnodes = 2\nrendezvous = "10.0.0.4:29500"\n')
    check_nodes(met)
    (line,) = start_notes(Path("/runs/a"), met.config.trainer)
    assert "headrace join /runs/a --node 1" in line
    assert ready_s(met.config.supervisor, met.config.trainer) == 1500.0
    with pytest.raises(ConfigError, match=r"ranks = 4 .* is no multiple of nodes = 3.* take 3"):
        config(tmp_path, "[trainer]\nranks = 4\nnodes = 3\n")


def test_a_machine_that_joins_has_settings_and_ports_of_its_own(tmp_path: Path) -> None:
    table = {"ranks": 4, "nodes": 2, "rendezvous": "10.0.0.4:29500"}
    values = {
        "trainer": table,
        "run_dir": "/elsewhere",
        "http_port": 1,
        "run": {"stage": "sft"},
        "announce": "10.0.0.4",
    }
    folder = run_dir(tmp_path, StageSettings.model_validate(values))
    environment = {"HEADRACE_NODE": "7"}
    plan, budget = plan_node(node_settings(folder, 1, "", environment), environment)
    written = json.loads((folder / "config" / "trainer-node-1.json").read_text())
    assert (written["node"], written["run_dir"], written["http_port"]) == (1, str(folder), plan.http_port)
    assert written["announce"] == ""
    codes = ("--stopped-code", "75", "--operator-code", "76")
    assert plan.argv[-8:-1] == ("--stage", "sft", *codes, "--config") and "HEADRACE_NODE" not in plan.env
    assert budget.ready_s > 600 and plan.name == "trainer-node-1"
    other = node_settings(folder, 1, "10.0.0.5:1", {"HEADRACE_ANNOUNCE": "10.0.0.6", "HEADRACE_TLS": "/tls"})
    assert (other.trainer.rendezvous, other.announce, other.tls) == ("10.0.0.5:1", "10.0.0.6", Path("/tls"))
    with pytest.raises(ConfigError, match="--node 2: the trainer has 2 machines"):
        node_settings(folder, 2, "", {})


def test_a_machine_joins_once_and_a_second_join_writes_nothing(tmp_path: Path) -> None:
    table = {"ranks": 4, "nodes": 2, "rendezvous": "10.0.0.4:29500"}
    folder = run_dir(tmp_path, TrainerSettings.model_validate({"trainer": table}))
    lock = RunLock(folder, name="join-1.lock")
    with pytest.raises(
        ConfigError, match=rf"machine 1 of {folder} is in use by another headrace \(pid {os.getpid()}\)"
    ):
        join_node(folder, 1, "", {}, Output.choose(json=True))
    assert not (folder / "config" / "trainer-node-1.json").exists()
    lock.release()
    RunLock(folder, name="join-1.lock").release()


def test_a_fork_is_refused_where_a_launcher_starts_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_NODE", "1")
    assert "HEADRACE_NODE is set: fork on one machine" in said("train", "--fork", "run", status=2)
