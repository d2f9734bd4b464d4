"""The ```bash blocks of each page that stands by itself run as they are."""

from pathlib import Path

import pytest

from tests.docs.typed import FIRST, pages, readers_folder, run_page
from tests.variants import keep

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
KEPT = {"docs/kubernetes.md", "docs/migration.md"}
"""The others start several runs, as tests/e2e does."""


@pytest.mark.parametrize("name", keep(KEPT, [name for name in pages() if name not in FIRST]))
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path) -> None:
    run_page(pages()[name], readers_folder(tmp_path))
