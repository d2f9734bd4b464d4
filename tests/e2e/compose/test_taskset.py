"""A taskset of `verifiers` on a real Docker engine: its image, its rows, and a run prepared without the package."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import Project, docker
from tests.e2e.episodes import played_run
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

BUILD_S, UP_S, STEPS_S = 1200, 600, 900
RUN_ARGS = "/config/run.toml --run.max-steps 100000 --eval.every 1000 --trainer.schedule constant"
WRITE = "python -P -m headrace.services.environment.taskset.write_rows"
TABLE = """
[environment]
name = "verifiers:sums"
path = "sets"
slots = 4
max_turns = 3
episode_s = 100
start_s = 200
"""
SUMS = """
import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsTask(vf.Task[vf.TaskData, vf.State]):
    @vf.reward
    async def even(self, trace: vf.Trace) -> float:
        return float(trace.last_reply[:1] in set("02468"))


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    def load(self):
        return [SumsTask(vf.TaskData(prompt=f"{one}+{one + 1}"), self.config.task) for one in range(1, 9)]

    @classmethod
    def toolsets(cls, config):
        from sums.tools import Tools

        return [Tools(vf.ToolsetConfig())]
"""
TOOLS = '''
import verifiers.v1 as vf


class Tools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def add(self, a: int, b: int) -> str:
        """Adds."""
        return str(a + b)


if __name__ == "__main__":
    Tools.run()
'''


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run whose rows are yet to be written; the containers' user reads it."""
    folder = played_run(
        tmp_path_factory.mktemp("config") / "sums", table=TABLE, staleness=1, deterministic=False
    ).folder
    module = folder / "sets" / "sums"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text(SUMS)
    (module / "tools.py").write_text(TOOLS)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="module")
def project(config: Path) -> Iterator[Project]:
    need_engine()
    variables = {"CONFIG": str(config), "RUN": "sums", "RUN_ARGS_CPU": RUN_ARGS, "ENVIRONMENT_TARGET": "verifiers"}
    # A tag of its own: the image of other tests has no taskset.
    made = Project(f"headrace-sums-{os.getpid()}", "cpu,environment", {**engine_images(), **variables}, tag="verifiers")
    made.compose("build", seconds=BUILD_S)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


def test_rows_that_its_image_writes_are_trained_by_a_run_that_is_prepared_without_the_package(
    project: Project, config: Path
) -> None:
    write = ("run", "--rm", "--no-deps", "-T", "--entrypoint", WRITE)
    rows = project.compose(*write, "environment", "sums", "--path", "/config/sets", "--limit", "6", seconds=300)
    assert [json.loads(line)["prompt"] for line in rows.splitlines()] == [f"{n}+{n + 1}" for n in range(1, 7)]
    for name in ("prompts.jsonl", "held_out.jsonl"):
        (config / name).write_text(rows)
    project.compose("up", "--detach", seconds=UP_S)
    until(lambda: step(project) >= 3, "the third step", seconds=STEPS_S, detail=project.logs, every_s=1.0)
    reported = project.status()["environments"]
    assert reported, project.status()


@pytest.mark.parametrize("harness", ["null", "bash"])
def test_its_image_has_the_script_of_each_harness_that_is_played(project: Project, harness: str) -> None:
    held = ("--read-only", "--tmpfs", "/tmp", "--network", "none", "--user", "10001:10001", "--rm")
    ready = ("-P", "-m", "headrace.services.environment.taskset.harness", harness)
    docker("run", *held, "--entrypoint", "python", "headrace-environment:verifiers", *ready, seconds=120)


def step(project: Project) -> int:
    return int(project.status().get("step", 0))
