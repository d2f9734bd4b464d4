"""The control plane of these tests."""

from collections.abc import Iterator

import pytest

from tests.integration.kubernetes import control_plane


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[control_plane.ControlPlane]:
    """Started once: of the files that need it `make test` has one, `make test-all` runs the others in one process."""
    with control_plane.started() as plane:
        yield plane
