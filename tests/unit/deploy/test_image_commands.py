"""What an image's command needs is installed in it: run here with all other packages out of reach."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.unit.deploy.scripts import DEPLOY
from tests.unit.deploy.test_requirements import FILES

_COMMAND = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
absent = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Absent())
from headrace.__main__ import main
main()
"""


def installed(*extras: str) -> set[str]:
    """The names of the distributions that an image with the core and some extras has."""
    found: set[str] = set()
    wanted = [Requirement(line) for name in ("core", *extras) for line in FILES[f"{name}.txt"].splitlines()]
    while wanted:
        one = wanted.pop()
        name = canonical(one.name)
        if name not in found:
            found.add(name)
            needed = [Requirement(line) for line in requires(name) or ()]
            wanted += [need for need in needed if not need.marker or need.marker.evaluate({"extra": ""})]
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def headrace(*arguments: str, extras: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    here = installed(*extras) | {"headrace", "packaging", "setuptools"}
    absent = {name for name, of in packages_distributions().items() if not here & {canonical(one) for one in of}}
    assert "torch" in absent
    words = [sys.executable, "-c", _COMMAND, ",".join(sorted(absent)), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("verb", ["check", "status"])
def test_the_orchestrator_image_can_run_the_inspection_commands(verb: str) -> None:
    done = headrace(verb, "/nowhere", extras=("orchestrator", "tracing"))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "/nowhere" in done.stderr


def test_the_orchestrator_image_can_create_the_certificates_for_compose(tmp_path: Path) -> None:
    done = headrace("certs", "init", str(tmp_path / "certs"), extras=("orchestrator", "tls"))
    assert done.returncode == 0 and (tmp_path / "certs" / "broker-key.pem").is_file(), done.stderr
    stage = (DEPLOY / "docker/orchestrator.Dockerfile").read_text()
    assert "-r /wanted/orchestrator.txt -r /wanted/tls.txt " in stage


def test_the_environment_image_renders_conversations_without_torch() -> None:
    there = installed("environment", "tracing")
    assert {"transformers", "tokenizers", "jinja2"} <= there and "torch" not in there
