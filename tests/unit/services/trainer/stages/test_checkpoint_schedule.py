"""Checkpoints that are written beside the steps: what holds training up, what waits, and whose error surfaces where."""

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability import checkpointing
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.durability.journaled_ledger import RecordedStep
from headrace.services.trainer.learner.learner import Saved
from headrace.services.trainer.records.step_record import TrainedStep
from headrace.services.trainer.records.step_writer import StepWriter
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.services.trainer.throughput.speed import Hardware
from headrace.wire.errors import DiskError, FencedError
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.trainer.stages.test_batch_wait import ledger_with


class Models:
    """The leader as far as a checkpoint asks it: `during` is called while the weights are copied."""

    def __init__(self, during):
        self._during = during

    ranks = Ranks.alone()

    def save(self, aside):
        self._during()
        one = {"w": torch.ones(2)}
        copied = Future()
        copied.set_result({"model": one, "optimizer": one, "random": {}})
        return Saved(copied=copied, coefficients={})


class Record:
    """The records of steps, each written once `opened`; the metrics lines `synced` are durable."""

    def __init__(self):
        self.opened, self.lines, self.synced, self.error = threading.Event(), [], [], None
        self.opened.set()

    def line(self, trained):
        return {"seconds": 1.0, "wait_batch_share": 0.1}

    def write(self, trained, line):
        self.opened.wait(20)
        if self.error:
            raise self.error
        self.lines.append(trained.step)
        return RecordedStep(step=trained.step, rollouts="", rollouts_from=0)

    def sync(self):
        self.synced = list(self.lines)


def operation():
    labels = {"operation": "checkpoint"}
    names = ("active", "until_timestamp_seconds")
    return tuple(REGISTRY.get_sample_value(f"headrace_trainer_operation_{name}", labels) for name in names)


@pytest.fixture
def record():
    made = Record()
    yield made
    made.opened.set()


@pytest.fixture
def keep(tmp_path, record):
    """Makes a schedule with a real store, journal and ledger; returns it and the ledger."""
    ledgers = []

    def make(during, every=10):
        trainer = {"checkpoint_deadline_s": 500.0, "checkpoint_every": every}
        settings = TrainerSettings.model_validate(
            {"model": {"path": tmp_path}, "run_dir": tmp_path, "trainer": trainer}
        )
        ledger = ledger_with(tmp_path, "drop", [])
        ledgers.append(ledger)
        store = CheckpointStore(tmp_path / "checkpoints", keep=2)
        reporter = Reporter(None, ledger, pb.RegisterTrainerRequest(), republish=lambda: None)
        records = StepWriter(record, reporter, ledger, Hardware())
        return CheckpointSchedule(settings, store, Models(during), ledger, reporter, records), ledger

    yield make
    for ledger in ledgers:
        ledger.close()


def interval():
    return REGISTRY.get_sample_value("headrace_trainer_checkpoint_interval_steps")


def waited():
    return REGISTRY.get_sample_value("headrace_trainer_checkpoints_waited_total")


@pytest.fixture
def gate(monkeypatch):
    """Holds the writer before each checkpoint shows until it is set."""
    opened = threading.Event()

    def hold(ledger):
        monkeypatch.setattr(ledger, "fence", lambda: opened.wait(20))
        return opened

    yield hold
    opened.set()


def published(tmp_path):
    return sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*"))


def test_a_checkpoint_tells_its_deadline_while_weights_are_copied_and_is_written_beside_the_steps(keep, gate, tmp_path):
    seen = []
    begin = time.time()
    schedule, ledger = keep(lambda: seen.append(operation()))
    opened = gate(ledger)
    schedule.save(3)
    ((active, until),) = seen
    assert active == 1 and begin + 500 <= until <= time.time() + 500
    active, until = operation()
    assert active == 0 and begin <= until <= time.time() and published(tmp_path) == []
    opened.set()
    schedule.finish(3)
    assert published(tmp_path) == ["step-000003"] and len(seen) == 1


def test_one_that_falls_due_while_another_is_written_waits_and_is_counted(keep, gate, tmp_path):
    schedule, ledger = keep(lambda: None)
    before, opened = waited(), gate(ledger)
    schedule.save(10)
    assert schedule.is_due(20, stepped=True) and not schedule.is_due(21, stepped=True) and waited() == before
    threading.Timer(0.3, opened.set).start()
    schedule.save(20)
    assert waited() == before + 1 and published(tmp_path)[0] == "step-000010"
    schedule.finish(20)
    assert published(tmp_path) == ["step-000010", "step-000020"]


def test_by_time_it_is_due_at_the_end_of_a_step_at_which_none_is_written(keep, gate, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpointing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    schedule, ledger = keep(lambda: None, every="2m")
    before, opened = waited(), gate(ledger)
    now[0] += 119
    assert not schedule.is_due(7, stepped=True) and interval() == 7
    now[0] += 2
    assert not schedule.is_due(8, stepped=False) and schedule.is_due(8, stepped=True)
    schedule.save(8)
    now[0] += 121
    assert [schedule.is_due(version, stepped=True) for version in (9, 10)] == [False, False]
    assert waited() == before + 1 and interval() == 7
    opened.set()
    schedule._writer.wait()
    assert schedule.is_due(11, stepped=True)


def test_a_requested_one_holds_no_step_up_and_is_done_when_it_is_written(keep, gate, tmp_path):
    schedule, ledger = keep(lambda: None)
    reporter, opened, before = schedule._reporter, gate(ledger), waited()
    schedule.save(10)
    reporter.checkpoint_asked = 1
    assert [schedule.is_due(11, stepped=True), schedule.is_due(11, stepped=False)] == [False, False]
    assert waited() == before + 1 and not reporter.checkpoint_done
    opened.set()
    schedule.finish(10)
    assert schedule.is_due(11, stepped=False)
    schedule.save(11)
    schedule.finish(11)
    assert reporter.checkpoint_done == 1 and published(tmp_path) == ["step-000010", "step-000011"]
    reporter.checkpoint_asked = 2
    assert not schedule.is_due(11, stepped=False) and reporter.checkpoint_done == 2


def test_stopped_in_a_hurry_the_one_that_is_written_suffices(keep, gate, tmp_path):
    schedule, ledger = keep(lambda: None)
    opened = gate(ledger)
    schedule.save(10)
    threading.Timer(0.3, opened.set).start()
    schedule.finish(11, hurry=True)
    assert published(tmp_path) == ["step-000010"]
    schedule.finish(12, hurry=True)
    assert published(tmp_path) == ["step-000010", "step-000012"]


def test_a_fenced_life_ends_it_before_the_checkpoint_shows(keep, tmp_path, monkeypatch):
    schedule, ledger = keep(lambda: None)

    def fence():
        raise FencedError("a newer life")

    monkeypatch.setattr(ledger, "fence", fence)
    schedule.save(3)
    with pytest.raises(FencedError):
        schedule.finish(3)
    with pytest.raises(FencedError):
        schedule.check()
    assert operation()[0] == 0 and published(tmp_path) == []


def test_none_shows_before_the_steps_that_it_covers_are_recorded(keep, record, tmp_path):
    schedule, _ = keep(lambda: None)
    record.opened.clear()
    schedule._records.add(TrainedStep(3, (), None, {}), 9.0)
    schedule.save(3)
    time.sleep(0.3)
    assert published(tmp_path) == [] and record.synced == []
    record.opened.set()
    schedule.finish(3)
    assert published(tmp_path) == ["step-000003"] and record.synced == [3]


def test_none_shows_after_a_record_that_could_not_be_written_and_the_next_look_raises_why(keep, record, tmp_path):
    schedule, _ = keep(lambda: None)
    record.error = DiskError("the disk is full")
    schedule._records.add(TrainedStep(3, (), None, {}), 9.0)
    schedule.save(3)
    with pytest.raises(DiskError):
        schedule._writer.wait()
    with pytest.raises(DiskError):
        schedule.is_due(4, stepped=False)
    assert published(tmp_path) == []
