"""The run with which others are compared."""

import pytest

from tests.e2e.undisturbed import Undisturbed
from tests.e2e.undisturbed import undisturbed as of_the_session


@pytest.fixture(scope="session")
def undisturbed_run(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A run that nobody disturbs, at its end. Tests only read it."""
    return of_the_session(tmp_path_factory)


@pytest.fixture(scope="session")
def undisturbed(undisturbed_run: Undisturbed) -> str:
    """Its weights hash."""
    return str(undisturbed_run.verdict["weights_sha256"])
