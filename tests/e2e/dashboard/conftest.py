"""A browser, and a synthetic run that all tests of the folder look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import launched
from tests.dashboard_run import write_run
from tests.e2e.dashboard.shown import Shown

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser

STEPS = 400
ROLLOUTS = 10_000


# Not of the session: two browsers of Playwright's synchronous kind cannot live at once, and others' tests have theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """400 steps and 10,000 rollouts; a second run lies beside it. Nobody changes them."""
    runs: Path = tmp_path_factory.mktemp("runs")
    write_run(runs / "first", steps=STEPS, rollouts=ROLLOUTS)
    write_run(runs / "second", steps=150, rollouts=40, seed=1, state="stopped")
    server = Shown(runs / "first")
    server.start()
    yield server
    server.stop()
