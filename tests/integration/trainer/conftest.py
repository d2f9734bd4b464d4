"""A trainer's life that nothing disturbs, once for each file that compares with it."""

import pytest

from tests.integration.trainer.harness import live, settings_for
from tests.integration.trainer.lives import STEPS


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("undisturbed"), steps=STEPS)
    assert live(settings) == 0
    return settings
