"""A browser, and the annotators' page as a real process."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.process.environment import inherited
from tests.integration.orchestrator.served import Served

REQUIRE = "HEADRACE_REQUIRE_BROWSER"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser; without one the tests are skipped, unless it is said that they must run."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if inherited().get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but there is no chromium on the path")
        pytest.skip(f"no chromium on the path; {REQUIRE}=1 makes this a failure")
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.stop()
