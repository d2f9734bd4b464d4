"""The annotators' page as a real process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.orchestrator.served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.stop()
