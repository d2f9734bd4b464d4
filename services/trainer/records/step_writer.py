"""Reports and records each step of an RL run beside the next one."""

import math
from functools import partial

from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.records.step_record import StepRecord, TrainedStep
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.throughput.speed import Hardware, step_speed

_DEPTH = 2
"""Steps that are trained and not recorded: their batches are in memory."""


class StepWriter:
    """Used by the training thread, and by the one that writes checkpoints, which settles it first."""

    def __init__(self, record: StepRecord, reporter: Reporter, ledger: JournaledLedger, hardware: Hardware) -> None:
        self._record, self._reporter, self._ledger, self._hardware = record, reporter, ledger, hardware
        self._writer = BackgroundWriter("the records of the last steps", depth=_DEPTH)

    @property
    def full(self) -> bool:
        """Whether `add` would wait."""
        return self._writer.full

    def add(self, trained: TrainedStep, limit_s: float) -> None:
        """Queues the report of a step to the orchestrator, and its record. Raises the error of an earlier one.

        Raises WaitTimeoutError if the queue is full for `limit_s` seconds.
        """
        self._writer.start(partial(self._write, trained), limit_s=limit_s)

    def check(self) -> None:
        """Raises the error of a record that could not be written."""
        self._writer.check()

    def settle(self, limit_s: float | None = None) -> None:
        """Returns when the steps added so far are recorded durably; raises the error of one that could not be.

        Raises WaitTimeoutError after `limit_s` seconds. A checkpoint must not show before: the steps that it covers are
        not replayed, so that their records would never be written.
        """
        self._writer.wait(limit_s)
        self._record.sync()

    def _write(self, trained: TrainedStep) -> None:
        line = self._record.line(trained)
        line |= step_speed(line, self._hardware, rollout_gpus=self._reporter.rollout_gpus)
        self._reporter.waiting_share = line["wait_batch_share"]
        # JSON has no NaN: a status with one could not be read.
        finite = {key: float(value) for key, value in line.items() if math.isfinite(value)}
        self._reporter.step(finite | {"step": float(trained.step)})
        self._ledger.recorded(self._record.write(trained, line))
