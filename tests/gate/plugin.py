"""Registers the gate's plugins with pytest."""

import pytest

from tests.gate import failures, until
from tests.gate.left_out import LeftOut
from tests.gate.parts import Part
from tests.gate.progress import Progress
from tests.gate.seconds import Seconds


def install(config: pytest.Config) -> None:
    """What collects runs in every process, what prints in the one that hears of all of them."""
    failures.install(config)
    until.install(config)
    part = config.getoption("part", None)
    if part:
        config.pluginmanager.register(Part(part))
    config.pluginmanager.register(LeftOut(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds())
        config.pluginmanager.register(Progress())
