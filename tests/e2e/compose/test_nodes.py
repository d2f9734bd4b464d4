"""A trainer of two nodes in two containers: deploy/compose/nodes.yml on a real Docker engine. In this order."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.operate.client import OrchestratorClient
from tests.e2e.compose.edges import Watch
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, Project, docker, service_of
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(1500)]

BUILD_S, UP_S = 1200, 600
STEPS_S, BACK_S, ENDS_S = 300, 300, 400
STEPS = 120
RUN = f"""
[run]
id = "nodes"
max_steps = {STEPS}
max_staleness = 1
[model.make]
hidden = 64
intermediate = 128
layers = 2
[data]
path = "prompts.jsonl"
eval_size = 16
[batch]
groups = 8
group_size = 4
[rollout.sampling]
max_tokens = 4
[reward]
path = "."
[[reward.scorers]]
name = "rewards:closeness"
[trainer]
learning_rate = 1e-3
checkpoint_every = 3
node_timeout_s = 20.0
"""
NODES = ("trainer-cpu", "trainer-node")
CHANGED = """
import json, sys
from pathlib import Path
from safetensors.torch import load_file
def read(folder):
    return dict(pair for file in Path(folder).glob("*.safetensors") for pair in load_file(file).items())
before, after = map(read, sys.argv[1:])
changed = [key for key in after if (before[key] != after[key]).any()]
print(json.dumps([before.keys() == after.keys(), len(changed), len(after)]))
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with prompts and rewards of the example; the containers' user reads it."""
    folder = tmp_path_factory.mktemp("config")
    for name in ("prompts.jsonl", "rewards.py"):
        shutil.copy(ROOT / "examples" / "arithmetic" / name, folder)
    (folder / "run.toml").write_text(RUN)
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def running(config: Path) -> Iterator[tuple[Project, Watch]]:
    need_engine()
    variables = {
        **engine_images(),
        "COMPOSE_FILE": "docker-compose.yml:deploy/compose/nodes.yml",
        "CONFIG": str(config),
        "RUN": "nodes",
        "RUN_ARGS_CPU": "/config/run.toml",
    }
    made = Project(f"headrace-nodes-{os.getpid()}", "cpu", variables)
    made.compose("build", seconds=BUILD_S)
    watch = Watch(made)
    try:
        made.compose("up", "--detach", seconds=UP_S)
        yield made, watch
    finally:
        watch.stop()
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


def nodes(project: Project) -> dict[str, dict[str, Any]]:
    """Both containers, also ended ones, by their services."""
    return {service_of(one): one for one in project.containers(all_of_them=True) if service_of(one) in NODES}


def step(project: Project) -> int:
    return int(project.status().get("step", 0))


def incarnation_of(project: Project) -> int:
    """Incarnation of the trainer; on a busy machine an answer may fail to come in time."""
    return int(until(project.status, "an answer", seconds=60, detail=project.logs, every_s=1.0)["incarnation"])


def test_two_containers_train_together(running: tuple[Project, Watch]) -> None:
    project, _ = running
    until(lambda: step(project) >= 2, "steps", seconds=STEPS_S, detail=project.logs, every_s=1.0)
    addresses = {
        network["IPAddress"]
        for one in nodes(project).values()
        for network in one["NetworkSettings"]["Networks"].values()
    }
    assert len(addresses) == 2


def kill(project: Project, service: str) -> None:
    """Not `docker kill`: the engine would take it for a wish, and start nothing again."""
    pid = int(nodes(project)[service]["State"]["Pid"])
    assert pid > 1, f"{service} has ended\n{project.logs()}"
    os.kill(pid, signal.SIGKILL)


def came_back(project: Project, before: dict[str, dict[str, Any]], incarnation: int) -> bool:
    """Whether both containers were started again, the same ones, and make a new life of the trainer."""
    now = nodes(project)
    assert {name: one["Id"] for name, one in now.items()} == {name: one["Id"] for name, one in before.items()}
    started = all(one["RestartCount"] > before[name]["RestartCount"] for name, one in now.items())
    return started and int(project.status().get("incarnation", 0)) > incarnation


def act(project: Project, name: str) -> None:
    """What an operator does; not by the command line, whose start takes as long as many steps."""
    (orchestrator,) = project.of("orchestrator-cpu")
    token = docker("exec", orchestrator["Id"], "cat", "/run/user-tokens/operator").strip()
    client = OrchestratorClient(f"http://127.0.0.1:{project.port}", token=token)
    client.post(f"/api/actions/{name}", {"who": "test"})


def test_a_node_killed_while_it_trains_brings_both_back(running: tuple[Project, Watch]) -> None:
    project, _ = running
    before, incarnation, at = nodes(project), incarnation_of(project), step(project)
    kill(project, "trainer-node")
    until(lambda: came_back(project, before, incarnation), "both", seconds=BACK_S, detail=project.logs, every_s=1.0)
    until(lambda: step(project) > at, "more steps", seconds=STEPS_S, detail=project.logs, every_s=1.0)


def test_a_leader_killed_while_both_wait_brings_both_back(running: tuple[Project, Watch]) -> None:
    project, _ = running
    act(project, "pause")
    before, incarnation = nodes(project), incarnation_of(project)
    kill(project, "trainer-cpu")
    until(lambda: came_back(project, before, incarnation), "both", seconds=BACK_S, detail=project.logs, every_s=1.0)
    act(project, "resume")


def test_both_end_well_with_a_trained_model(running: tuple[Project, Watch]) -> None:
    project, _ = running

    def ended() -> bool:
        return {one["State"]["Status"] for one in nodes(project).values()} == {"exited"}

    until(ended, "both to end", seconds=ENDS_S, detail=project.logs, every_s=1.0)
    assert {name: one["State"]["ExitCode"] for name, one in nodes(project).items()} == dict.fromkeys(NODES, 0)
    until(lambda: step(project) == STEPS, "the last step to be told", seconds=60, detail=project.logs, every_s=1.0)
    words = ("run", "--rm", "--volume", f"{project.name}_runs:/runs:ro", "--entrypoint", "python")
    folders = ("/runs/nodes/model", "/runs/nodes/export")
    same, changed, tensors = json.loads(
        docker(*words, f"headrace-trainer:{project.tag}-cpu", "-P", "-c", CHANGED, *folders)
    )
    assert same and tensors and changed == tensors


def test_the_edges_are_those_of_the_network_policies(running: tuple[Project, Watch]) -> None:
    from tests.integration.kubernetes.policies import policy_edges

    _, watch = running
    assert watch.edges == policy_edges("base+jobset")
