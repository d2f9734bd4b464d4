"""The Docker engine of this machine: whether it is there, and what brings it up."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

_ASK_S = 30
_START_S = 900
LOCAL_IMAGES = {
    "PYTHON_IMAGE": "localbase/python:3.11",
    "VALKEY_IMAGE": "localbase/redis:7",
    "PROMETHEUS_IMAGE": "localbase/prometheus:2.42",
    "TORCH_INDEX": "",
    "BUILD_NETWORK": "host",
}
"""What the variables of `.env` are where the base images are made on the machine itself (see `engine_images`)."""


def need_engine() -> None:
    """Skips the test without an engine that knows Compose, unless HEADRACE_REQUIRE_DOCKER=1: then it fails.

    HEADRACE_COMPOSE_ENGINE names a folder whose `start.sh` brings one up.
    """
    problem = _engine_problem()
    if problem and os.environ.get("HEADRACE_REQUIRE_DOCKER") == "1":
        pytest.fail(problem)
    if problem:
        pytest.skip(f"{problem}; install Docker Engine with Compose 2.26 or newer and start it")


def need_compose() -> None:
    """For `docker compose config`, which asks no engine: the command line is enough, or what `need_engine` brings."""
    if shutil.which("docker") is None or _run("docker", "compose", "version").returncode:
        need_engine()


def engine_images() -> dict[str, str]:
    """Variables for Compose: base images that were made on this machine, where there are such; else those of `.env`."""
    found = _run("docker", "image", "inspect", LOCAL_IMAGES["PYTHON_IMAGE"])
    return dict(LOCAL_IMAGES) if found.returncode == 0 else {}


@cache
def _engine_problem() -> str:
    start = Path(os.environ.get("HEADRACE_COMPOSE_ENGINE", "")) / "start.sh"
    if _answers() and (not start.is_file() or engine_images()):
        return ""
    if start.is_file():
        done = subprocess.run([start], capture_output=True, text=True, timeout=_START_S, check=False)
        if done.returncode:
            return f"{start} failed: {done.stderr[-500:]}"
    return "" if _answers() else "no Docker engine with Compose answers here"


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return all(_run("docker", *words).returncode == 0 for words in (("info",), ("compose", "version")))


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
