"""Episodes on a real Docker engine: played, kept from secrets, trained. In this order."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
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
def running(config: Path) -> Iterator[Project]:
    need_engine()
    variables = {**engine_images(), "CONFIG": str(config), "RUN": "played", "RUN_ARGS_CPU": RUN_ARGS}
    made = Project(f"headrace-played-{os.getpid()}", "cpu,environment", variables)
    made.compose("build", seconds=BUILD_S)
    try:
        made.compose("up", "--detach", seconds=UP_S)
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


def step(project: Project) -> int:
    return int(project.status().get("step", 0))


def wait_for_step(project: Project, wanted: int) -> None:
    until(lambda: step(project) >= wanted, f"step {wanted}", seconds=STEPS_S, detail=project.logs, every_s=1.0)


def health(project: Project) -> set[str]:
    return {one["State"]["Health"]["Status"] for one in project.of("environment")}


def test_episodes_are_played_and_trained(running: Project) -> None:
    wait_for_step(running, 3)
    until(lambda: health(running) == {"healthy"}, "it to be healthy", seconds=120, detail=running.logs, every_s=1.0)
    found = docker("exec", running.of("orchestrator-cpu")[0]["Id"], "ls", "/runs/played/environment").split()
    assert found == ["game.py", "spy.py"]


def test_a_child_in_the_container_sees_neither_secrets_nor_the_network(running: Project) -> None:
    (broker,) = running.of("valkey")
    (address,) = [one["IPAddress"] for one in broker["NetworkSettings"]["Networks"].values()]
    (worker,) = running.of("environment")
    command = ("python", "-I", "-c", CHILD, "/runs/played/environment", "/runs/played", address)
    variables = ("--env", "GIVEN=1", "--env", "NOT_GIVEN=planted")
    found: dict[str, Any] = json.loads(docker("exec", *variables, worker["Id"], *command).splitlines()[-1])
    assert (found["read"], found["runs"], found["cwd"]) == ([], ["environment"], "/tmp"), found
    assert found["network"] == "OSError" and len(found["processes"]) < 5, found
    named = set(found["variables"])
    assert "GIVEN" in named and not {name for name in named if "BROKER" in name or name == "NOT_GIVEN"}, named


def test_nothing_was_lost(running: Project) -> None:
    running.compose("stop", "trainer-cpu", seconds=180)
    checked = docker("exec", running.of("orchestrator-cpu")[0]["Id"], "headrace", "check", "/runs/played")
    assert "in order" in checked, checked
