"""The ```bash blocks of the pages that a reader begins with run as they are, one page behind the other.

The demo that they begin with takes two minutes; tests/e2e/test_cli_runs.py runs it, too.
"""

from pathlib import Path

import pytest

from tests.docs.typed import FIRST, pages, readers_folder, run_page

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return readers_folder(tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("name", FIRST)
def test_the_blocks_of_a_page_run_in_the_folder_of_those_before(name: str, folder: Path) -> None:
    run_page(pages()[name], folder)
