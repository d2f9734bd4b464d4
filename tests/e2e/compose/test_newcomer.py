"""Who has just cloned the project, on a machine with nothing but Python: the first command of the README."""

import io
import re
import subprocess
import tarfile
import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, docker

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.newcomer, pytest.mark.timeout(1800)]

_INSTALL_S, _DEMO_S = 300, 1500
_LOADS = """
import sys
from transformers import AutoModelForCausalLM
print(sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(sys.argv[1]).parameters()))
"""


def checkout() -> bytes:
    """A tar of the files that git knows, as they are here now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in filter(None, names.split("\0")):
            if (ROOT / name).exists():
                tar.add(ROOT / name, arcname=f"headrace/{name}", recursive=False)
    return buffer.getvalue()


@pytest.fixture
def machine() -> Iterator[str]:
    """A container that is a clean machine with Python; the checkout is at /headrace."""
    need_engine()
    image = engine_images().get("PYTHON_IMAGE", "python:3.11-slim-bookworm")
    name = f"headrace-newcomer-{uuid.uuid4().hex[:8]}"
    docker("run", "--detach", "--init", "--network", "host", "--name", name, image, "sleep", "infinity")
    try:
        subprocess.run(["docker", "cp", "-", f"{name}:/"], input=checkout(), check=True, timeout=120)
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def test_the_first_command_of_the_readme_reaches_a_trained_model(machine: str) -> None:
    (command,) = re.findall(r"^ *(make demo)\b", (ROOT / "README.md").read_text(), re.MULTILINE)
    install = "apt-get update -qq && apt-get install -qq --yes --no-install-recommends make > /dev/null"
    docker("exec", machine, "sh", "-c", install, seconds=_INSTALL_S)
    said = docker("exec", "--workdir", "/headrace", machine, *command.split(), seconds=_DEMO_S)
    accuracy = re.search(r"held-out accuracy ([\d.]+)% -> ([\d.]+)%", said)
    assert accuracy, said[-3000:]
    assert float(accuracy[2]) > float(accuracy[1]) + 10, accuracy[0]
    model = re.search(r"^model: (\S+)$", said, re.MULTILINE)
    assert model, said[-3000:]
    # The next command of the page, in a shell that knows nothing of the environment.
    for page in ("README.md", "docs/quickstart.md"):
        (source,) = re.findall(r"^(source \.venv/bin/activate)$", (ROOT / page).read_text(), re.MULTILINE)
        help_text = docker("exec", "--workdir", "/headrace", machine, "bash", "-c", f"{source} && headrace --help")
        assert "headrace" in help_text
    python = "/headrace/.venv/bin/python"
    assert int(docker("exec", machine, python, "-c", _LOADS, model[1])) > 500_000
