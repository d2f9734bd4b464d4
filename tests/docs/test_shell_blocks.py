"""Every ```bash block of the documentation runs as it stands, page by page, from an empty folder.

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


def pages() -> list[object]:
    found = itertools.groupby(blocks("bash"), key=lambda block: block.name)
    return [pytest.param(list(of_page), id=name) for name, of_page in found]


@pytest.mark.parametrize("page", pages())
def test_the_blocks_of_a_page_run(page: list[Block], tmp_path: Path) -> None:
    text = "\n".join(block.text for block in page)
    if "kubectl" in text and shutil.which("kubectl") is None:
        assert os.environ.get("HEADRACE_REQUIRE_DOCKER") != "1", "kubectl is missing"
        pytest.skip("needs kubectl 1.24 or newer on PATH")
    for name in ("examples", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = tmp_path / ".page.sh"
    script.write_text("set -euxo pipefail\n" + text)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_RUN__MAX_STEPS": STEPS,
        "HEADRACE_ORCHESTRATOR__FAILURES_IN_ROW": "1000",
    }
    done = subprocess.run(
        ["bash", str(script)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_PAGE_S,
    )
    assert done.returncode == 0, f"{page[0].name}:\n{done.stdout[-3000:]}"
