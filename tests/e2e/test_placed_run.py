"""Two machines of a trainer, each started by the same command of a launcher, whose variables tell them apart."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from headrace.supervisor.ports import pick_ports
from headrace.wire.process.lifecycle import die_with_parent
from tests.e2e.harness import ROOT, TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DEADLINE_S = 300
HERE = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def torchrun(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "torch.distributed.run", *arguments, "-m")


def both(folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]) -> list[int]:
    """Exit statuses of the two commands, run at the same time; their output is in `folder`."""
    with ExitStack() as stack:
        processes = []
        for node, (command, variables) in enumerate(zip(commands, environments, strict=True)):
            log = stack.enter_context((folder / f"task-{node}.log").open("wb"))
            env = {**os.environ, **HERE, **variables}
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, preexec_fn=die_with_parent)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            processes.append(process)
        return [process.wait(DEADLINE_S) for process in processes]


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["skypilot", "torchrun"])
def test_equal_tasks_of_a_launcher_are_machine_0_and_its_followers(tmp_path: Path, launcher: str) -> None:
    tiny = TinyRun(tmp_path / "tiny", steps=4, replicas=1)
    port = str(pick_ports(1)[0])
    if launcher == "skypilot":
        job = yaml.safe_load((ROOT / "examples" / "skypilot" / "headrace.yaml").read_text())
        commands = [("bash", "-c", job["run"])] * job["num_nodes"]
        given = job["envs"] | {"RUN_DIR": "run", "RANKS": "2", "HEADRACE_RENDEZVOUS": f"127.0.0.1:{port}"}
        given |= {"SKYPILOT_NUM_NODES": str(job["num_nodes"]), "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1"}
        environments = [given | {"SKYPILOT_NODE_RANK": str(node)} for node in range(2)]
    else:
        train = ("headrace", "train", "run.toml", "--run-dir", "run", "--trainer.ranks", "2")
        meet = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}")
        commands = [(*torchrun(*meet, f"--node-rank={node}"), *train) for node in range(2)]
        environments = [{}, {}]
    statuses = both(tiny.folder, commands, environments)
    said = [(tiny.folder / f"task-{node}.log").read_text() for node in range(2)]
    assert statuses == [0, 0], "\n".join(said)
    assert "finished: 4 steps" in said[0] and "trainer-node-1 finished" in said[1] and "step 4" not in said[1]
    assert tiny.check()["steps"] == 4


def test_torchrun_with_several_tasks_a_machine_is_refused_by_command_and_service(tmp_path: Path) -> None:
    words = ("headrace.services.trainer", "--config", "trainer.json"), ("headrace", "train", "run.toml")
    (tmp_path / "trainer.json").write_text("{}")
    environments = [{"MASTER_PORT": str(port)} for port in pick_ports(2)]
    commands = [(*torchrun("--standalone", "--nproc-per-node=2"), *each) for each in words]
    assert both(tmp_path, commands, environments) == [1, 1]
    for node in range(2):
        said = (tmp_path / f"task-{node}.log").read_text()
        assert "LOCAL_WORLD_SIZE = 2: Headrace starts the ranks of a machine itself" in said, said
