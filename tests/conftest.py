"""Fixtures that several folders of tests use, and which tests may run beside each other."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.valkey import Valkey

# An assert that fails outside of a test's own file tells its values, too. Nothing of ours has been imported before.
_HERE = Path(__file__).parent
pytest.register_assert_rewrite(
    *(f"tests.{one.stem}" for one in _HERE.iterdir() if one.stem[0] != "_" and one.stem != "conftest")
)

# An example's time is the machine's load, nothing of ours.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")

# Of these folders all tests run one after another: they share what takes minutes to build, gigabytes to hold, or what
# the kernel counts by user.
_ONE_AT_A_TIME = ("tests/e2e/compose/", "tests/integration/sglang/", "tests/integration/reward/sandbox/")
# The longest first, so that no worker is left alone with them at the end.
_ORDER = (*_ONE_AT_A_TIME[:2], "tests/e2e/", "tests/docs/", "tests/chaos/", "tests/integration/", "")


@pytest.hookimpl(tryfirst=True)  # Before pytest-xdist reads the groups.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers (`--numprocesses 2 --dist loadgroup`) the tests of a file share one, and so its fixtures."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(_first(file, _ONE_AT_A_TIME) or file))
    items.sort(key=lambda item: _ORDER.index(_first(item.nodeid, _ORDER)))


def _first(path: str, folders: Sequence[str]) -> str:
    return next((folder for folder in folders if path.startswith(folder)), "")


@pytest.fixture
def valkey(tmp_path: Path) -> "Iterator[Valkey]":
    from tests.valkey import Valkey

    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()
