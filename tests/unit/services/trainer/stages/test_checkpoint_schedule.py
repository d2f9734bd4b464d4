"""A checkpoint between two steps tells its deadline while it is under way, and its end, however it ends."""

import time

import pytest
import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.learner.learner import Saved
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.wire.errors import FencedError
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.trainer.stages.test_batch_wait import ledger_with


class Models:
    """The leader as far as a checkpoint asks it: `during` is called while the weights are gathered."""

    def __init__(self, during):
        self._during = during

    def save(self):
        self._during()
        one = {"w": torch.ones(2)}
        return Saved(weights=one, optimizer=one, others={}, coefficients={})


def operation():
    labels = {"operation": "checkpoint"}
    names = ("active", "until_timestamp_seconds")
    return tuple(REGISTRY.get_sample_value(f"headrace_trainer_operation_{name}", labels) for name in names)


@pytest.fixture
def keep(tmp_path):
    """Makes a schedule with a real store, journal and ledger; returns it and the ledger."""
    ledgers = []

    def make(during):
        settings = TrainerSettings.model_validate(
            {"model": {"path": tmp_path}, "run_dir": tmp_path, "trainer": {"checkpoint_deadline_s": 500.0}}
        )
        ledger = ledger_with(tmp_path, "drop", [])
        ledgers.append(ledger)
        store = CheckpointStore(tmp_path / "checkpoints", keep=2)
        reporter = Reporter(None, ledger, pb.RegisterTrainerRequest(), republish=lambda: None)
        return CheckpointSchedule(settings, store, Models(during), ledger, reporter), ledger

    yield make
    for ledger in ledgers:
        ledger.close()


def test_a_checkpoint_tells_its_deadline_while_weights_are_gathered_and_its_end(keep, tmp_path):
    seen = []
    begin = time.time()
    schedule, _ = keep(lambda: seen.append(operation()))
    schedule.save(3)
    ((active, until),) = seen
    assert active == 1 and begin + 500 <= until <= time.time() + 500
    active, until = operation()
    assert active == 0 and begin <= until <= time.time()
    assert (tmp_path / "checkpoints" / "step-000003").is_dir()


def test_a_fenced_life_ends_it_before_the_checkpoint_shows(keep, tmp_path, monkeypatch):
    schedule, ledger = keep(lambda: None)

    def fence():
        assert operation()[0] == 1
        raise FencedError("a newer life")

    monkeypatch.setattr(ledger, "fence", fence)
    with pytest.raises(FencedError):
        schedule.save(3)
    assert operation()[0] == 0 and not (tmp_path / "checkpoints" / "step-000003").exists()
