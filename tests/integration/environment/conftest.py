"""What several tests of this folder use."""

import pytest

from tests.integration.environment.test_child import need_sandbox


@pytest.fixture
def sandbox() -> None:
    """Skips the test where there is no bubblewrap."""
    need_sandbox()
