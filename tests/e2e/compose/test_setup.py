"""The first container of a start refuses what the others could not use: one line in its log, and nothing else runs."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, Project, docker, service_of
from tests.e2e.compose.strict import strict_checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

BUILD_S, UP_S = 900, 180
START = ("up", "--detach", "--wait", "valkey", "prometheus")
"""Two services that read what is mounted, and whatever comes before them."""


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """Variables; the image of `setup` is there."""
    need_engine()
    found = engine_images()
    words = ["--build-arg", f"PYTHON_IMAGE={found['PYTHON_IMAGE']}", "--network", "host"] if found else []
    file = str(ROOT / "deploy/docker/orchestrator.Dockerfile")
    tag = ["--target", "cpu", "--tag", "headrace-orchestrator:test"]
    docker("build", "--quiet", *words, "--file", file, *tag, str(ROOT), seconds=BUILD_S)
    return found


@pytest.fixture
def strict(images: dict[str, str], tmp_path: Path) -> Iterator[Project]:
    """A project whose checkout only its owner may read, and whose RUNS is a folder that is not there yet."""
    folder = strict_checkout(tmp_path / "headrace")
    variables = {**images, "RUNS": str(tmp_path / "runs")}
    made = Project(f"headrace-strict-{os.getpid()}", "cpu", variables, folder)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "2", seconds=UP_S)


def start(project: Project) -> "subprocess.CompletedProcess[str]":
    return project.attempt(*START, seconds=UP_S)


def refused(project: Project) -> list[str]:
    """Starts it; the lines of its one container, which ran once and failed."""
    done = start(project)
    assert done.returncode != 0 and 'service "setup" didn\'t complete successfully: exit 2' in done.stderr, done.stderr
    found = {service_of(one): one for one in project.containers(all_of_them=True)}
    ran = {name: one for name, one in found.items() if one["State"]["Status"] != "created"}
    assert ran.keys() == {"setup"}
    assert ran["setup"]["State"]["ExitCode"] == 2 and ran["setup"]["RestartCount"] == 0
    said = project.attempt("logs", "--no-log-prefix", "--no-color", "setup").stdout.splitlines()
    # Compose begins with a control sequence, also where no terminal is.
    lines = [re.sub(r"\x1b\[\d*[A-Z]", "", line) for line in said]
    return [line for line in lines if line]


def test_setup_names_unreadable_folders_and_the_suggested_fixes_work(strict: Project) -> None:
    prometheus, grafana, config, runs = refused(strict)
    for line, named in ((prometheus, "deploy/prometheus"), (grafana, "deploy/grafana")):
        assert line.startswith(f"{named} (mode 0700 of {os.getuid()}:{os.getgid()})") and line.endswith(
            f"chmod -R go+rX {named}"
        ), line
    assert config.startswith("CONFIG: examples/arithmetic (mode 0700") and "umask 077" in config
    # The engine has made it, for root.
    folder = strict.folder.parent / "runs"
    way_out = f"chown 10001:10001 {folder}"
    assert runs.startswith(f"RUNS: {folder} (mode 0755 of 0:0) cannot be written to by uid 10001"), runs
    assert runs.endswith(way_out)

    for line in (prometheus, grafana, config, runs):
        command = line.rpartition(": ")[2]
        subprocess.run(command.split(), cwd=strict.folder, check=True)
    done = start(strict)
    assert done.returncode == 0, f"{done.stderr}\n{strict.logs()}"
    assert {service_of(one) for one in strict.containers()} == {"valkey", "prometheus"}
