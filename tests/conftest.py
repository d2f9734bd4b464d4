"""Fixtures that several folders of tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.valkey import Valkey

# An example's time is the machine's load, nothing of ours.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()
