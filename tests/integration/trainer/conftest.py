"""A trainer's life that nothing disturbs, once for all files that compare with it."""

import pytest

from tests.integration.trainer.harness import live, settings_for
from tests.integration.trainer.lives import STEPS
from tests.shared import made_once


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The settings of a life at its end. Tests only read what it has left."""

    def make(folder):
        folder.mkdir()
        assert live(settings_for(folder, steps=STEPS)) == 0

    return settings_for(made_once(tmp_path_factory, "trainer-life", make), steps=STEPS)
