"""Programs in the environment's container as docker-compose.yml holds it; without its profiles it does not start."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.identity import environment_digest
from headrace.services.environment.settings import EnvironmentTable
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, docker
from tests.e2e.compose.resolved import parse
from tests.e2e.episodes import AGENT_TABLE, played_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

TAG = "headrace-environment:test"
HELD = ["--read-only", "--init", "--tmpfs", "/tmp", "--user", "10001:10001", "--cap-drop", "ALL"]
HELD += ["--security-opt", "no-new-privileges:true", "--network", "none", "--rm"]
PROFILES = [word for one in parse()["environment"]["security_opt"][1:] for word in ("--security-opt", one)]
BEAT = "import time\nwhile True: open('beat', 'a').write('x'); time.sleep(0.01)"
AGENT = f"""
import json, os, subprocess, sys, time
import extra
subprocess.Popen([sys.executable, "-c", {BEAT!r}])
while not os.path.exists("beat"):
    time.sleep(0.01)
print(json.dumps({{"extra": extra.WORD, "run": os.path.exists("/in/run"), "variables": sorted(os.environ)}}))
"""
GRADE = """
import os, time
before = os.path.getsize("beat")
time.sleep(0.5)
open("/logs/verifier/reward.txt", "w").write(str(float(os.path.getsize("beat") == before)))
"""
"""1 if what the program left behind it is gone."""
PLAY = """
import asyncio, json
from pathlib import Path
from headrace.services.environment.agent.process import AgentConfig, AgentProcess
from headrace.services.environment.child.config import ChildConfig

async def main():
    folders = (Path("/in/packages"),)
    config = ChildConfig(path=Path("/in/code"), run_dir=Path("/in/run"), folders=folders, start_s=100)
    command = ("env", "PYTHONPATH=/in/packages", "python", "agent.py")
    one = AgentProcess(config, AgentConfig(command=command, reward_command=("python", "grade.py")))
    await one.start()
    try:
        status = await one.run("{}", "sk-1", 100)
        print(json.dumps([status, await one.run_reward("{}", 100), one.last_words()]))
    finally:
        await one.kill()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def image() -> str:
    need_engine()
    images = engine_images()
    words = ["--build-arg", f"PYTHON_IMAGE={images['PYTHON_IMAGE']}", "--network", "host"] if images else []
    file = str(ROOT / "deploy/docker/environment.Dockerfile")
    docker("build", "--quiet", *words, "--file", file, "--target", "cpu", "--tag", TAG, str(ROOT), seconds=900)
    return TAG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seen as /in: a run with its copy of a program, the service's settings, and a program with a package."""
    made = tmp_path_factory.mktemp("agents")
    run = played_run(made / "played", table=AGENT_TABLE).folder
    (made / "run").mkdir()
    (run / "game").rename(made / "run" / "environment")
    (run / "model").rename(made / "model")
    (made / "run" / "events").mkdir()
    told = {"command": ["python", "agent.py"], "reward_file": "reward.txt", "slots": 4}
    table = EnvironmentTable.model_validate({**told, "path": made / "run" / "environment"})
    settings = {
        "run_dir": "/in/run",
        "model": {"path": "/in/model"},
        "environment": {**told, "path": "/in/run/environment"},
        "environment_digest": environment_digest(table),
    }
    (made / "environment.json").write_text(json.dumps(settings))
    for name, text in {"code/agent.py": AGENT, "code/grade.py": GRADE, "packages/extra.py": "WORD = 'found'"}.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (made / "run" / "events").chmod(0o777)
    return made


def ran(image: str, folder: Path, profiles: list[str], *command: str) -> "subprocess.CompletedProcess[str]":
    """What a container said that is held as Compose holds it, but for its profiles."""
    seen = ["--volume", f"{folder}:/in:ro", "--volume", f"{folder}/run/events:/in/run/events"]
    words = ["docker", "run", *HELD, *profiles, *seen, "--entrypoint", "python", image]
    return subprocess.run([*words, *command], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def service(*words: str) -> list[str]:
    return ["-P", "-m", "headrace.services.environment", "--config", "/in/environment.json", *words]


def test_a_service_starts_with_the_profiles_of_compose(image: str, folder: Path) -> None:
    done = ran(image, folder, PROFILES, *service("--check"))
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_start_under_the_engines_own_profiles_is_refused_with_the_way_out(image: str, folder: Path) -> None:
    done = ran(image, folder, [], *service())
    said = done.stderr + done.stdout
    assert done.returncode == 2 and "environments cannot be isolated" in said, said
    for named in ("deploy/compose/seccomp-sandbox.json", "headrace-sandbox", "docs/sandbox.md"):
        assert named in said, said
    assert "network = true" not in said, "a program has no way to be played outside of the sandbox"


def test_a_program_is_played_with_its_packages_and_leaves_no_process_to_its_reward(image: str, folder: Path) -> None:
    done = ran(image, folder, PROFILES, "-I", "-c", PLAY)
    assert done.returncode == 0, done.stderr
    status, reward, said = json.loads(done.stdout.splitlines()[-1])
    assert (status, reward) == (0, ["/logs/verifier/reward.txt", "1.0"]), (status, reward, said)
    seen: dict[str, Any] = json.loads(said[said.index("{") :])
    assert seen["extra"] == "found" and seen["run"] is False
    assert not [name for name in seen["variables"] if name.startswith("HEADRACE")], seen
