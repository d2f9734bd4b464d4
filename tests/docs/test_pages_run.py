"""Runs the ```bash blocks of a page in a reader's folder. Training is cut to a few steps: the commands are the same."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks

FIRST = ("docs/quickstart.md", "docs/running.md")
"""In this order in one folder: the others look at the run that the first makes. The rest stand by themselves."""
_STEPS = "4"
_MADE = "headrace demo --run-dir runs/demo\n"
"""What `make demo` does, which installs too."""
_PAGE_S = 900
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1000)]


def pages() -> dict[str, list[Block]]:
    """The blocks of each page that has some."""
    return {name: list(of_page) for name, of_page in itertools.groupby(blocks("bash"), key=lambda block: block.name)}


def readers_folder(folder: Path) -> Path:
    """The folder as a checkout has it for a reader."""
    for name in ("examples", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_page(page: list[Block], folder: Path, before: str = "") -> None:
    """All blocks of a page as one script; skips a page of kubectl where there is none."""
    text = "\n".join(block.text for block in page)
    if "kubectl" in text and shutil.which("kubectl") is None:
        assert os.environ.get("HEADRACE_REQUIRE_DOCKER") != "1", "kubectl is missing"
        pytest.skip("needs kubectl 1.24 or newer on PATH")
    script = folder / ".page.sh"
    script.write_text("set -euxo pipefail\n" + before + text)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_RUN__MAX_STEPS": _STEPS,
        "HEADRACE_TRAINER__CHECKPOINT_EVERY": "2",
        "HEADRACE_ORCHESTRATOR__FAILURES_IN_ROW": "1000",
    }
    done = subprocess.run(
        ["bash", str(script)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_PAGE_S,
        check=False,
    )
    assert done.returncode == 0, f"{page[0].name}:\n{done.stdout[-3000:]}"


@pytest.fixture(scope="module")
def first_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return readers_folder(tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("name", FIRST)
def test_the_first_pages_run_one_after_the_other(name: str, first_folder: Path) -> None:
    run_page(pages()[name], first_folder, _MADE if name == FIRST[0] else "")


@pytest.mark.parametrize("name", [name for name in pages() if name not in FIRST])
def test_a_page_runs(name: str, tmp_path: Path) -> None:
    run_page(pages()[name], readers_folder(tmp_path))
