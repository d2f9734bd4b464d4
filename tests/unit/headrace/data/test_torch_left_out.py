"""When the process that prepares the data does without torch."""

import importlib.util
import sys
from types import ModuleType

import pytest

from headrace.data.__main__ import leave_torch_out


def test_torch_that_is_not_loaded_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    del sys.modules["torch"]
    leave_torch_out()
    assert importlib.util.find_spec("torch") is None


def test_torch_that_a_fork_server_has_loaded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", loaded)
    leave_torch_out()
    assert sys.modules["torch"] is loaded
