"""What the first lines of the trainer make of an end."""

import pytest

from headrace.services.trainer.__main__ import _run_ranks
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.stop import StoppedError, StopSignal
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.services.trainer.settings import TrainerSettings

CHILD = RankTopology(rank=1, ranks=2, port=4711).arguments()


@pytest.fixture
def ended(monkeypatch):
    """The exit code of a process with these arguments, after a run that a signal ended or that came to its end."""
    monkeypatch.setattr(StopSignal, "install", lambda self: None)

    def end(settings, arguments, *, signalled=True, code=0):
        def run(place, stop):
            stop.signalled = signalled
            return code

        monkeypatch.setattr("sys.argv", ["trainer", "--stopped-code", "143", *arguments])
        return _run_ranks(settings, run)

    return end


@pytest.mark.parametrize("kind", [TrainerSettings, StageSettings])
def test_the_code_of_a_stop_is_that_of_a_machines_first_process(ended, kind):
    settings = kind.model_validate({"trainer": {"ranks": 2}})
    assert ended(settings, []) == 143
    assert ended(settings, CHILD) == 0
    assert ended(settings, [], signalled=False) == 0
    assert ended(settings, [], code=1) == 1


def test_a_stop_before_the_start_has_that_code_too(monkeypatch):
    monkeypatch.setattr(StopSignal, "install", lambda self: None)
    monkeypatch.setattr("sys.argv", ["trainer", "--stopped-code", "143"])

    def run(place, stop):
        stop.receive()
        raise StoppedError("asked to stop while it waited")

    assert _run_ranks(TrainerSettings(), run) == 143
