"""Fixtures that several folders of tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.valkey import Valkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()
