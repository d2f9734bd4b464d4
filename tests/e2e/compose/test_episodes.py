"""Episodes on a real Docker engine: played, kept from secrets, scaled, measured. In this order."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.compose.edges import Watch
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.inside import LIST, TRY, WRITABLE
from tests.e2e.compose.project import Project, docker
from tests.e2e.episodes import played_run
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

BUILD_S, UP_S, STEPS_S = 1200, 600, 400
# It must outlive this file: nothing here waits for its end.
RUN_ARGS = "/config/run.toml --run.max-steps 100000 --eval.every 1000 --environment.slots 8 --trainer.schedule constant"
SPY = """
import json, os, socket

PLACES = ("/run/broker/url", "/run/tokens", "/runs/played/config", "/runs/played/journal", "/config/run.toml")

class Spy:
    def reset(self, task, rollout_id, attempt):
        try:
            socket.create_connection((task["address"], 6379), timeout=5).close()
            network = "open"
        except OSError as error:
            network = type(error).__name__
        found = {
            "read": [place for place in PLACES if os.path.exists(place)],
            "runs": sorted(os.listdir("/runs/played")),
            "variables": sorted(os.environ),
            "processes": [name for name in os.listdir("/proc") if name.isdecimal()],
            "cwd": os.getcwd(),
            "network": network,
        }
        return json.dumps(found)
"""
CHILD = """
import asyncio, json, sys
from pathlib import Path
from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError

async def main(path, run_dir, address):
    child = ChildProcess(
        ChildConfig(environment="spy:Spy", path=Path(path), run_dir=Path(run_dir), start_s=120, variables=("GIVEN",))
    )
    try:
        await child.start()
    except ConfigError as error:
        return {"refused": str(error)}
    begun = await child.reset({"address": address}, "r/0", 1, timeout_s=120)
    await child.kill()
    return json.loads(begun["messages"][0]["content"])

print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run in which every row is played; the containers' user reads it."""
    folder = played_run(tmp_path_factory.mktemp("config") / "played", deterministic=False, staleness=1).folder
    (folder / "game" / "spy.py").write_text(SPY)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="module")
def running(config: Path) -> Iterator[tuple[Project, Watch]]:
    need_engine()
    variables = {**engine_images(), "CONFIG": str(config), "RUN": "played", "RUN_ARGS_CPU": RUN_ARGS}
    made = Project(f"headrace-played-{os.getpid()}", "cpu,environment", variables)
    made.compose("build", seconds=BUILD_S)
    watch = Watch(made)
    try:
        made.compose("up", "--detach", seconds=UP_S)
        yield made, watch
    finally:
        watch.stop()
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


def step(project: Project) -> int:
    return int(project.status().get("step", 0))


def wait_for_step(project: Project, wanted: int) -> None:
    until(lambda: step(project) >= wanted, f"step {wanted}", seconds=STEPS_S, detail=project.logs, every_s=1.0)


def health(project: Project) -> set[str]:
    return {one["State"]["Health"]["Status"] for one in project.of("environment")}


def test_episodes_are_played_and_trained(running: tuple[Project, Watch]) -> None:
    project, _ = running
    wait_for_step(project, 3)
    until(lambda: health(project) == {"healthy"}, "it to be healthy", seconds=120, detail=project.logs, every_s=1.0)
    found = docker("exec", project.of("orchestrator-cpu")[0]["Id"], "ls", "/runs/played/environment").split()
    assert found == ["game.py", "spy.py"]


def test_the_image_has_no_torch(running: tuple[Project, Watch]) -> None:
    project, _ = running
    code = "import importlib.util as u; print([m for m in ('torch', 'transformers') if u.find_spec(m)])"
    assert project.python("environment", code).strip() == "['transformers']"


def test_a_child_in_the_container_sees_neither_secrets_nor_the_network(running: tuple[Project, Watch]) -> None:
    project, _ = running
    (broker,) = project.of("valkey")
    (address,) = [one["IPAddress"] for one in broker["NetworkSettings"]["Networks"].values()]
    (worker,) = project.of("environment")
    command = ("python", "-I", "-c", CHILD, "/runs/played/environment", "/runs/played", address)
    variables = ("--env", "GIVEN=1", "--env", "NOT_GIVEN=planted")
    found: dict[str, Any] = json.loads(docker("exec", *variables, worker["Id"], *command).splitlines()[-1])
    assert (found["read"], found["runs"], found["cwd"]) == ([], ["environment"], "/tmp"), found
    assert found["network"] == "OSError" and len(found["processes"]) < 5, found
    named = set(found["variables"])
    assert "GIVEN" in named and not {name for name in named if "BROKER" in name or name == "NOT_GIVEN"}, named


def test_the_service_may_write_to_its_own_event_logs_and_to_nothing_else_of_any_run(
    running: tuple[Project, Watch],
) -> None:
    project, _ = running
    own = "/runs/played/events/environment"
    writable = json.loads(project.python("environment", WRITABLE))
    assert writable[0] == own and all(path.startswith(f"{own}/environment-") for path in writable[1:]), writable
    others = ("", "/journal", "/checkpoints", "/events/reward", "/config")
    places = ["/runs", *(f"/runs/played{name}" for name in others)]
    acts = [*(("create", place) for place in places), ("rename", "/runs/played/journal"), ("chmod", own)]
    refused = json.loads(project.python("environment", TRY, json.dumps(acts)))
    assert set(refused) <= {"Permission denied", "Operation not permitted"}, refused
    assert json.loads(project.python("environment", TRY, json.dumps([("create", own)]))) == [""]
    files = json.loads(project.python("environment", LIST, "/run/tokens"))
    assert files == ["/run/tokens/accepted.json", "/run/tokens/environment"]


def test_under_dockers_own_profile_the_start_is_refused_with_the_way_out(
    running: tuple[Project, Watch], config: Path
) -> None:
    held = ["--read-only", "--tmpfs", "/tmp", "--user", "10001:10001", "--cap-drop", "ALL", "--rm", "--env", "GIVEN=1"]
    held += ["--security-opt", "no-new-privileges:true", "--network", "none", "--volume", f"{config}/game:/game:ro"]
    command = ["docker", "run", *held, "--entrypoint", "python", "headrace-environment:test", "-I", "-c", CHILD]
    done = subprocess.run([*command, "/game", "/runs/played", "127.0.0.1"], capture_output=True, text=True, timeout=120)
    said = json.loads(done.stdout.splitlines()[-1])["refused"]
    assert said.startswith("environments cannot be isolated") and "seccomp" in said, said


def test_it_scales_to_three_and_back_by_itself(running: tuple[Project, Watch]) -> None:
    project, _ = running
    scale = ("up", "--detach", "--no-recreate", "--no-deps", "--scale")
    project.compose(*scale, "environment=3", "environment", seconds=UP_S)
    until(lambda: playing(project) >= 3, "three to play", seconds=240, detail=project.logs, every_s=1.0)
    project.compose(*scale, "environment=1", "environment", seconds=UP_S)
    assert len(project.of("environment")) == 1
    wait_for_step(project, step(project) + 3)


def playing(project: Project) -> int:
    """How many services have played episodes, as Prometheus scrapes them."""
    (found,) = project.query("sum by (instance) (headrace_environment_episodes_total) > 0")
    return len(found)


def test_the_edges_are_those_of_the_network_policies(running: tuple[Project, Watch]) -> None:
    from tests.integration.kubernetes.policies import policy_edges

    _, watch = running
    assert watch.edges == policy_edges("base+environment")


def test_nothing_was_lost(running: tuple[Project, Watch]) -> None:
    project, _ = running
    project.compose("stop", "trainer-cpu", seconds=180)
    checked = docker("exec", project.of("orchestrator-cpu")[0]["Id"], "headrace", "check", "/runs/played")
    assert "in order" in checked, checked
