"""The worked examples in docstrings hold."""

import doctest
import importlib

import pytest

MODULES = ("headrace.wire.contracts.messages", "headrace.services.trainer.algorithms.algorithm")


@pytest.mark.parametrize("module", MODULES)
def test_worked_examples_hold(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed
