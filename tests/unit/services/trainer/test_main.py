"""What the first lines of the trainer make of an end."""

import pytest

from headrace.services.trainer.__main__ import _run_ranks
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.stop import StoppedError, StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.services.trainer.settings import TrainerSettings

CHILD = RankTopology(rank=1, ranks=2, port=4711).arguments()


@pytest.fixture
def ended(monkeypatch):
    """The exit code of a process with these arguments, after training that ended so."""
    monkeypatch.setattr(StopSignal, "install", lambda self: None)

    def code_of(settings, arguments, end):
        monkeypatch.setattr("sys.argv", ["trainer", "--stopped-code", "143", *arguments])
        return _run_ranks(settings, lambda place, stop: end)

    return code_of


@pytest.mark.parametrize("kind", [TrainerSettings, StageSettings])
def test_only_a_machines_first_process_exits_with_the_stop_code(ended, kind):
    settings = kind.model_validate({"trainer": {"ranks": 2}})
    assert ended(settings, [], TrainingEnd.INTERRUPTED) == 143
    assert ended(settings, CHILD, TrainingEnd.INTERRUPTED) == 0
    assert ended(settings, [], TrainingEnd.FINISHED) == 0


def test_an_operators_stop_exits_with_its_configured_code_or_0(ended):
    settings = TrainerSettings.model_validate({"trainer": {"ranks": 2}})
    assert ended(settings, ["--operator-code", "76"], TrainingEnd.STOPPED) == 76
    assert ended(settings, ["--operator-code", "76"], TrainingEnd.FINISHED) == 0
    assert ended(settings, ["--operator-code", "76", *CHILD], TrainingEnd.STOPPED) == 0
    assert ended(settings, [], TrainingEnd.STOPPED) == 0


def test_a_stop_before_the_start_has_that_code_too(monkeypatch):
    monkeypatch.setattr(StopSignal, "install", lambda self: None)
    monkeypatch.setattr("sys.argv", ["trainer", "--stopped-code", "143"])

    def run(place, stop):
        stop.receive()
        raise StoppedError("asked to stop while it waited")

    assert _run_ranks(TrainerSettings(), run) == 143
