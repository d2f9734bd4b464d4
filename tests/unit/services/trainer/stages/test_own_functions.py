"""A trainer process imports the run's copy of the user's code, and nothing else of that name."""

import sys

import pytest

from headrace.services.trainer.config.replay import ReplaySettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.own_functions import code_digest, load_algorithm
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.own_code import algorithm_code, publish_copy, read_files, stage_copy

TEXT = """
from headrace.services.trainer.algorithms.algorithm import Estimate

def estimate(signals):
    return Estimate(advantages=signals.rewards.repeat_interleave(signals.lengths))
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a run whose folder holds one module; returns its settings."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = []

    def start(name, **more):
        source = tmp_path / "code"
        source.mkdir()
        (source / f"{name}.py").write_text(TEXT)
        (tmp_path / "run" / "config").mkdir(parents=True)
        own = algorithm_code(tmp_path / "run")
        publish_copy(stage_copy(source, own), own)
        names.append(name)
        return {
            "run_dir": str(tmp_path / "run"),
            "algorithm": {"path": str(source), "advantage": f"{name}:estimate", **more},
            "batch": {"groups": 2, "group_size": 2},
        }

    yield start
    for name in names:
        if "own_functions" in name:
            sys.modules.pop(name, None)


def test_the_copy_is_imported_even_when_the_folder_is_gone(started, tmp_path):
    settings = TrainerSettings.model_validate(started("own_functions_copied"))
    (tmp_path / "code").rename(tmp_path / "elsewhere")
    load_algorithm(settings)
    assert sys.modules["own_functions_copied"].__file__ == str(tmp_path / "run/algorithm/own_functions_copied.py")
    assert sys.path[-1] == str(tmp_path / "run" / "algorithm")
    assert code_digest(settings) == read_files(tmp_path / "elsewhere").digest


def test_a_replay_imports_the_code_of_the_run_that_it_replays(started, tmp_path):
    values = started("own_functions_replayed")
    replayed = values | {"run_dir": str(tmp_path / "out"), "replay": {"source": values["run_dir"]}}
    load_algorithm(ReplaySettings.model_validate(replayed))
    assert str(tmp_path / "run") in str(sys.modules["own_functions_replayed"].__file__)


def test_a_module_shadowed_by_another_is_rejected(started):
    with pytest.raises(ConfigError, match=r"json:estimate: algorithm.path has a module json, but another"):
        load_algorithm(TrainerSettings.model_validate(started("json")))
