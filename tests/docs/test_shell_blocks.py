"""Every ```bash block of the documentation runs as it stands, in one reader's folder, who begins with the quickstart.

A training run of the docs is cut to a few steps: the commands are the same.
"""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
STEPS = "4"
_PAGE_S = 300
_FIRST = ("docs/quickstart.md", "docs/cli.md", "docs/operate.md")
"""In this order: the other pages need nothing of each other.

The demo that they begin with takes two minutes; tests/e2e/test_cli_runs.py runs it, too.
"""


def pages() -> list[object]:
    found = {name: list(of_page) for name, of_page in itertools.groupby(blocks("bash"), key=lambda block: block.name)}
    order = [*_FIRST, *(name for name in found if name not in _FIRST)]
    return [pytest.param(found[name], id=name, marks=[pytest.mark.long] * (name in _FIRST)) for name in order]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reader")
    for name in ("examples", "deploy"):
        (made / name).symlink_to(ROOT / name)
    return made


@pytest.mark.parametrize("page", pages())
def test_the_blocks_of_a_page_run(page: list[Block], folder: Path) -> None:
    text = "\n".join(block.text for block in page)
    if "kubectl" in text and shutil.which("kubectl") is None:
        assert os.environ.get("HEADRACE_REQUIRE_DOCKER") != "1", "kubectl is missing"
        pytest.skip("needs kubectl 1.24 or newer on PATH")
    script = folder / ".page.sh"
    script.write_text("set -euxo pipefail\n" + text)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_RUN__MAX_STEPS": STEPS,
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
    )
    assert done.returncode == 0, f"{page[0].name}:\n{done.stdout[-3000:]}"
