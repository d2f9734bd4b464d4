"""A checkpoint between two steps tells its deadline while it is under way, and its end, however it ends."""

import time

import pytest
import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.durability.failpoints import Failpoints
from headrace.services.trainer.learner.learner import Saved
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.wire.errors import FencedError
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.trainer.stages.test_batch_wait import book_with


class Models:
    """The leader as far as a checkpoint asks it: `during` is called while the weights are gathered."""

    def __init__(self, during):
        self._during = during

    def save(self):
        self._during()
        one = {"w": torch.ones(2)}
        return Saved(weights=one, optimizer=one, others={}, coefficients={})


def told():
    labels = {"operation": "checkpoint"}
    names = ("active", "until_timestamp_seconds")
    return tuple(REGISTRY.get_sample_value(f"headrace_trainer_operation_{name}", labels) for name in names)


@pytest.fixture
def keep(tmp_path):
    """Makes a keeper of a real store, journal and book; returns it and the book."""
    books = []

    def make(during):
        settings = TrainerSettings.model_validate(
            {"model": {"path": tmp_path}, "run_dir": tmp_path, "trainer": {"checkpoint_deadline_s": 500.0}}
        )
        book = book_with(tmp_path, "drop", [])
        books.append(book)
        store = CheckpointStore(tmp_path / "checkpoints", keep=2)
        reporter = Reporter(None, book, pb.RegisterTrainerRequest(), republish=lambda: None)
        return CheckpointSchedule(settings, store, Models(during), book, reporter, Failpoints()), book

    yield make
    for book in books:
        book.close()


def test_a_checkpoint_tells_its_deadline_while_weights_are_gathered_and_its_end(keep, tmp_path):
    seen = []
    begin = time.time()
    keeper, _ = keep(lambda: seen.append(told()))
    keeper.save(3)
    ((active, until),) = seen
    assert active == 1 and begin + 500 <= until <= time.time() + 500
    active, until = told()
    assert active == 0 and begin <= until <= time.time()
    assert (tmp_path / "checkpoints" / "step-000003").is_dir()


def test_a_full_disk_ends_it(keep):
    def full():
        raise OSError(28, "No space left on device")

    keeper, _ = keep(full)
    with pytest.raises(OSError, match="No space"):
        keeper.save(3)
    active, until = told()
    assert active == 0 and until <= time.time()


def test_a_fenced_life_ends_it_before_the_checkpoint_shows(keep, tmp_path, monkeypatch):
    keeper, book = keep(lambda: None)

    def fence():
        assert told()[0] == 1
        raise FencedError("a newer life")

    monkeypatch.setattr(book, "fence", fence)
    with pytest.raises(FencedError):
        keeper.save(3)
    assert told()[0] == 0 and not (tmp_path / "checkpoints" / "step-000003").exists()
