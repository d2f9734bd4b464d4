"""Programs of a model run in the reward container as deploy/compose/code-rewards.yml holds it, and not without."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, docker
from tests.e2e.compose.resolved import parse

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

TAG = "headrace-reward:test"
HELD = ["--read-only", "--init", "--tmpfs", "/tmp", "--user", "10001:10001", "--cap-drop", "ALL"]
HELD += ["--security-opt", "no-new-privileges:true", "--network", "none", "--rm"]
SETTINGS = {"run_dir": "/tmp/run", "reward": {"scorers": [{"name": "code"}], "processes": 1}}
SCORE = "python -P -m headrace.services.reward --config /in/reward.json --score /in/rows.jsonl --output /tmp/out"
SCORE += " && cat /tmp/out"
PROGRAMS = {
    "print(sum(map(int, input().split())))": 1.0,
    "print(4)": 0.0,
    "import socket; socket.create_connection(('127.0.0.1', 1)); print(3)": 0.0,
    "print(open('/proc/1/environ').read() or 3)": 0.0,
}


@pytest.fixture(scope="module")
def image() -> str:
    need_engine()
    images = engine_images()
    words = ["--build-arg", f"PYTHON_IMAGE={images['PYTHON_IMAGE']}", "--network", "host"] if images else []
    file = str(ROOT / "deploy/docker/reward.Dockerfile")
    docker("build", "--quiet", *words, "--file", file, "--target", "cpu", "--tag", TAG, str(ROOT), seconds=900)
    return TAG


def score(image: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    rows = [
        {
            "prompt": "add",
            "completion": f"```python\n{program}\n```",
            "tests": {"inputs": ["1 2"], "outputs": ["3"]},
        }
        for program in PROGRAMS
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.json").write_text(json.dumps(SETTINGS))
    folder.chmod(0o755)
    command = [
        "docker",
        "run",
        *HELD,
        *options,
        "--volume",
        f"{folder}:/in:ro",
        "--entrypoint",
        "sh",
        image,
        "-c",
        SCORE,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_programs_are_scored_under_the_code_rewards_override(image: str, tmp_path: Path) -> None:
    override = parse(ROOT / "deploy/compose/code-rewards.yml")
    assert list(override) == ["reward"] and list(override["reward"]) == ["security_opt"]
    options = [word for option in override["reward"]["security_opt"] for word in ("--security-opt", option)]
    done = score(image, tmp_path, *options)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if '"score"' in line]
    assert [row["score"] for row in rows] == list(PROGRAMS.values()), rows


def test_without_the_override_no_program_runs(image: str, tmp_path: Path) -> None:
    done = score(image, tmp_path)
    assert done.returncode == 2 and "there is no sandbox" in done.stderr + done.stdout
