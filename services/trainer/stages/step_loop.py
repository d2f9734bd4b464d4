"""The new steps of an RL run: wait for a batch, journal it, ack it, train, publish, record, checkpoint."""

import math
import time
from collections.abc import Mapping, Sequence

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UntrainedGroups
from headrace.services.trainer.learner.leader import Leader
from headrace.services.trainer.records.step_record import TrainedStep
from headrace.services.trainer.records.step_trace import phase_span, training
from headrace.services.trainer.records.step_writer import StepWriter
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.stages.batch_wait import wait_for_batch
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.services.trainer.stages.life import RlLife
from headrace.services.trainer.stages.room_wait import MIB, wait_for_room
from headrace.services.trainer.step.step import StepInterruptedError, StepOutcome
from headrace.services.trainer.timing.device_clock import clock_of
from headrace.services.trainer.timing.phases import TRAIN, Phases
from headrace.services.trainer.timing.step_times import step_times
from headrace.wire import tracing
from headrace.wire.process import failpoints
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

_LOOK_S = 0.05
log = get_logger("trainer.rl")


def count_step(step: int, outcome: StepOutcome) -> None:
    """Counts a step that was trained, and reports one that changed no weight."""
    metrics.STEPS.inc()
    if outcome.metrics["skipped"]:
        metrics.STEPS_SKIPPED.inc()
        masked = not outcome.metrics["kept_share"]
        reason = "all of its tokens are over run.max_staleness" if masked else "the gradient was not finite"
        log.error("step_skipped", step=step, reason=reason)


def training_phases(leader: Leader) -> Phases:
    """Phases that start now, by the clock of the device that trains."""
    return Phases(clock_of(leader.policy.device), around=phase_span)


class StepLoop:
    """Trains new batches. It begins when the weights are restored and the orchestrator has registered the trainer."""

    def __init__(
        self,
        life: RlLife,
        leader: Leader,
        ledger: JournaledLedger,
        reporter: Reporter,
        checkpoints: CheckpointSchedule,
        records: StepWriter,
        *,
        version: int,
    ) -> None:
        """`version`: the restored one."""
        self._life, self._leader, self._ledger, self._reporter = life, leader, ledger, reporter
        self._checkpoints, self._records = checkpoints, records
        self._settings, self._runtime, self._phases = life.settings, life.runtime, life.phases
        self._doing, self._given_up = life.doing, life.stop.asked
        self.version = version
        """The last step whose weights the learner has."""

    def one(self) -> None:
        """Trains the next step; returns without it if asked to stop before."""
        step = self.version + 1
        with tracing.span("step", begins=True, step=step) as span:
            with self._phases("wait"):
                batch = self._wait_for_batch(step)
            if batch is None or not self._has_room(batch):
                return
            with self._phases("journal"):
                on_the_way = self._journal_batch(step, batch)
            if not self._begin_turn():
                return  # The batch is in the journal: the next life trains it.
            phases = training_phases(self._leader)
            try:
                with self._phases(TRAIN), training(step, batch, span):
                    outcome = self._leader.train(step, batch, self._given_up, phases=phases)
                    self.version = step
                    count_step(step, outcome)
                    train = phases.lap()
            except StepInterruptedError:
                return  # The batch is in the journal: the next life trains it.
            self._after_training(step, batch, outcome, train, on_the_way)

    def _after_training(
        self,
        step: int,
        batch: Sequence[ReadyGroup],
        outcome: StepOutcome,
        train: Mapping[str, float],
        on_the_way: UntrainedGroups,
    ) -> None:
        """Publishes the weights, records the step, and takes the checkpoint that is due."""
        failpoints.reach("step.after_step")
        published, canary_gap = self._publish(step)
        numbers = step_times(self._phases.lap(), train)
        numbers |= {"replayed": False, "incarnation": self._ledger.incarnation, "canary_gap": canary_gap}
        with self._phases("record"):
            limit_s = self._settings.trainer.checkpoint_deadline_s
            if self._records.full:
                self._doing("the records of the steps before to be written", limit_s)
            self._records.add(TrainedStep(step, batch, outcome, numbers, on_the_way), limit_s)
            self._doing("")
        if published:
            self._checkpoint_if_due(stepped=True)

    def _begin_turn(self) -> bool:
        """Waits until the engines sleep, if they share the GPUs; False if asked to stop."""
        if not self._life.turns.are_taken:
            return True
        with self._phases("turn"):
            return self._life.turns.begin(self._leader, self._given_up)

    def _end_turn(self) -> None:
        if self._life.turns.are_taken:
            with self._phases("turn"):
                self._life.turns.end(self._leader)

    def _journal_batch(self, step: int, batch: Sequence[ReadyGroup]) -> UntrainedGroups:
        """Journals the batch, then acks it; returns which groups were dropped on the way to it."""
        failpoints.reach("step.before_journal")
        on_the_way = self._ledger.journal_batch(step, batch)
        failpoints.reach("step.after_journal")
        self._runtime.ack([group.group_index for group in batch])
        failpoints.reach("step.after_ack")
        return on_the_way

    def _has_room(self, batch: Sequence[ReadyGroup]) -> bool:
        """Waits for room to journal the batch; False if asked to stop."""
        with self._phases("wait"):
            return wait_for_room(
                RunPaths(self._settings.run_dir).journal,
                batch,
                reserve_bytes=self._settings.trainer.disk_reserve_mib * MIB,
                limit_s=self._settings.trainer.batch_timeout_s,
                given_up=self._given_up,
                check=self._check,
                doing=self._doing,
            )

    def _check(self) -> None:
        self._runtime.check()
        self._checkpoints.check()

    def _wait_for_batch(self, step: int) -> tuple[ReadyGroup, ...] | None:
        return wait_for_batch(
            step,
            self._ledger,
            self._runtime,
            self._reporter,
            limit_s=self._settings.trainer.batch_timeout_s,
            given_up=self._given_up,
            meanwhile=self._checkpoint_if_due,
            doing=self._doing,
        )

    def _publish(self, step: int) -> tuple[bool, float]:
        """Waits for the previous publication, takes the snapshot, and starts its own.

        Returns whether it did, and the gap of the previous one's canary. It does not if asked to stop meanwhile: the
        step has ended all the same, but its weights are not published.
        """
        self._doing("the publication before to end", self._runtime.publication_limit_s)
        with self._phases("publication_wait"):
            ended = self._runtime.publication_ended(given_up=self._given_up)
        canary_gap = self._life.publisher.canary_gap if ended else math.nan
        self._doing("")
        if self._settings.discriminator.every:
            # Before the policy's weights: rollouts sampled with them are scored by the discriminator of the same step.
            with self._phases("discriminator"):
                self._leader.publish_discriminator()
        with self._phases("snapshot"):
            held = self._leader.hold(self._life.publisher, step)
            self._end_turn()
            self._ledger.step_done(step, held.digest)
            metrics.POLICY_VERSION.set(step)
            failpoints.reach("step.before_publish")
            if ended:
                self._runtime.publish()
        return ended, canary_gap

    def checkpoint(self) -> None:
        """Takes the checkpoint of the current version, which is written in the background."""
        with self._phases("checkpoint"):
            self._checkpoints.save(self.version)

    def _checkpoint_if_due(self, *, stepped: bool = False) -> None:
        if self._checkpoints.is_due(self.version, stepped=stepped):
            self.checkpoint()

    def stop(self) -> None:
        """Returns when all records and a checkpoint are written: this version's, or by a signal the one under way."""
        self._finish_records()
        self._finish_checkpoint(hurry=self._life.stop.signalled)

    def _finish_records(self) -> None:
        limit_s = self._settings.trainer.checkpoint_deadline_s
        self._doing("the records of the last steps to be written", limit_s)
        self._records.settle(limit_s)

    def _finish_checkpoint(self, *, hurry: bool = False) -> None:
        self._doing("the last checkpoint to be written", self._settings.trainer.checkpoint_deadline_s)
        self._checkpoints.finish(self.version, hurry=hurry)

    def finish(self) -> None:
        """Exports the model after the last step, reports it, and stays for evaluations that still read this version."""
        self._doing("the last publication to end", self._runtime.publication_limit_s)
        self._runtime.publication_ended(given_up=self._given_up)
        self._finish_records()
        if self.version:
            self.checkpoint()
            target = RunPaths(self._settings.run_dir).export
            digest = self._leader.export(target)
            self._ledger.exported(target, digest)
            log.info("exported", path=str(target), weights_sha256=digest)
            self._finish_checkpoint()
        self._reporter.finished = True
        self._reporter.wake()
        limit_s = self._settings.trainer.evaluation_timeout_s
        self._doing("the last evaluation to end", limit_s)
        end = time.monotonic() + limit_s
        while self._reporter.evaluating and not self._given_up():
            self._runtime.check()
            if time.monotonic() > end:
                log.warning("evaluation_late", seconds=limit_s)
                return
            time.sleep(_LOOK_S)

    def receipt(self) -> str:
        """Takes a receipt of the run directory as it is at the end of this life."""
        return self._checkpoints.receipt(self.version)
