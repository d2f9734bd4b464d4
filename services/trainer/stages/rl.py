"""The RL stage: wait for a batch, journal it, ack it, step, publish; again until `max_steps`.

The order is law: the journal has the batch, durably, before its groups are acked, and they are acked before the
optimizer steps. The step runs in the main thread; everything else in the background.
"""

import time
from collections.abc import Mapping, Sequence

from headrace.services.trainer import metrics
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import rank_device
from headrace.services.trainer.durability.checkpoint import Checkpoint, CheckpointStore
from headrace.services.trainer.durability.checkpointing import show_room
from headrace.services.trainer.durability.failpoints import Failpoints
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger, RecordedStep
from headrace.services.trainer.durability.ledger import Ledger, ReadyGroup
from headrace.services.trainer.durability.staleness import UntrainedGroups, most_lag
from headrace.services.trainer.learner.leader import LOAD, Followers, Leader
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.records.step_record import StepRecord
from headrace.services.trainer.records.step_trace import phase_span, training
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.runtime.gpu_turns import TrainerTurns, make_locks
from headrace.services.trainer.runtime.runtime import BrokerMaker, Runtime
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.batch_wait import wait_for_batch
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.services.trainer.stages.follower import AWAITING_RANKS, make_rank_processes
from headrace.services.trainer.stages.own_functions import code_digest
from headrace.services.trainer.stages.parts import config_digest, load_learner, make_publisher
from headrace.services.trainer.stages.restore import read_history, replay
from headrace.services.trainer.stages.room_wait import MIB, wait_for_room
from headrace.services.trainer.step.step import StepInterruptedError, StepOutcome
from headrace.services.trainer.throughput.hardware import read_hardware
from headrace.services.trainer.throughput.speed import step_speed
from headrace.services.trainer.timing.device_clock import clock_of
from headrace.services.trainer.timing.phases import TRAIN, Phases
from headrace.services.trainer.timing.step_times import replay_times, step_times
from headrace.services.trainer.trackers import make_trackers
from headrace.wire import tracing
from headrace.wire.digests import algorithm_of, same_weights
from headrace.wire.errors import ConfigError
from headrace.wire.journal import read_journal
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry import get_logger

_LOOK_S = 0.2
log = get_logger("trainer.rl")


class RlStage:
    """One life of the trainer."""

    def __init__(self, settings: TrainerSettings, make_broker: BrokerMaker, stop: StopSignal) -> None:
        self._settings = settings
        self._stop = stop
        self._fail = Failpoints(settings.trainer.fail_at)
        metrics.CHECKPOINT_EVERY.set(settings.trainer.checkpoint_every)
        self._checkpoints = CheckpointStore(
            RunPaths(settings.run_dir).checkpoints, keep=settings.trainer.keep_checkpoints
        )
        self._journal = RunPaths(settings.run_dir).journal
        self._record = StepRecord(
            settings.run_dir,
            keep_rollouts_mib=settings.trainer.keep_rollouts_mib,
            most_lag=most_lag(settings.run.stale, settings.run.max_staleness),
        )
        self._trackers = make_trackers(settings, settings.trackers)
        self._publisher: Publisher = make_publisher(settings)
        self._runtime = Runtime(settings, self._publisher, make_broker, stop.ask)
        self._version = 0
        self._replayed: list[RecordedStep] = []
        """Steps that were replayed before this life had an event log."""
        self._receipt = ""
        self._phases = Phases(around=phase_span)
        limit_s = settings.trainer.turn_timeout_s
        self._turns = TrainerTurns(make_locks(settings), self._runtime.ask_turn, self._waits, limit_s=limit_s)

    def run(self) -> TrainingEnd:
        """Runs to `max_steps` or until a stop; returns which of them it was."""
        # Starts the other ranks first, while this process has no threads.
        processes = make_rank_processes(self._settings, self._stop)
        self._runtime.doing = AWAITING_RANKS
        self._runtime.start()
        with processes.joined() as ranks:
            self._trackers.start()
            followers = Followers(ranks)
            try:
                self._begin(ranks, followers)
                while self._version < self._settings.run.max_steps and not self._stop.asked():
                    self._one_step(self._version + 1)
                end = self._end()
            except StepInterruptedError:
                log.info("stopped", version=self._version, before="the first new step")
                end = self._report_end(finished=False)
            finally:
                self._runtime.stop()
                self._trackers.finish(hurry=self._stop.asked(), step=self._version, receipt=self._receipt)
            followers.stop(end)
            # Not before the inbox, which writes drops, has ended.
            self._runtime.close_ledger()
        return end

    def _begin(self, ranks: Ranks, followers: Followers) -> None:
        """Loads and restores on all ranks. Raises StepInterruptedError when asked to stop before it is done."""
        if not self._turns.begin(None, self._stop.asked):
            raise StepInterruptedError("asked to stop before the GPU was free")
        self._runtime.doing = "loading the model"
        followers.send(LOAD)
        device = rank_device(self._settings.run.device, 0)
        self._leader = Leader(load_learner(self._settings, ranks, device), followers)
        self._hardware = read_hardware(device, ranks.size, peak_tflops=self._settings.trainer.peak_tflops)
        self._ledger = self._restore()
        # The time before is not part of the first step.
        self._phases.lap()

    def _end(self) -> TrainingEnd:
        finished = not self._stop.asked()
        if finished:
            self._finish()
        else:
            self._checkpoint()
            log.info("stopped", version=self._version)
        self._receipt = self._checkpoint_schedule.receipt(self._version)
        # After the last step a stop may also arrive while the last evaluations are awaited.
        return self._report_end(finished=finished)

    def _report_end(self, *, finished: bool) -> TrainingEnd:
        """Reports an operator's stop, if there is one; returns how training ended, `finished` or not.

        An operator's stop stays one whatever signals follow it, such as those by which the run's command ends.
        """
        by_operator = self._runtime.report_stopped()
        # Without an operator, a signal may have come before the orchestrator received the end: the next life does that.
        if finished and (by_operator or not self._stop.signalled):
            return TrainingEnd.FINISHED
        return TrainingEnd.STOPPED if by_operator else TrainingEnd.INTERRUPTED

    def _restore(self) -> JournaledLedger:
        """Restores the newest checkpoint, replays the journal, then opens an incarnation and publishes the weights."""
        records = list(read_journal(self._journal)) if self._journal.is_dir() else []
        if not self._settings.trainer.resume and (records or self._checkpoints.published()):
            raise ConfigError(f"{self._settings.run_dir} holds a run already: resume it, or choose another run_dir")
        history = read_history(records)
        checkpoint = self._checkpoints.newest()
        fates = {fate.group_index: fate for fate in history.fates}
        if checkpoint is not None:
            self._load(checkpoint)
            metrics.show_checkpoint(checkpoint.state.step, checkpoint.path)
            show_room(self._checkpoints)
            self._version = checkpoint.state.step
            fates = {fate.group_index: fate for fate in checkpoint.state.fates} | fates
        began_with = self._version
        replay(self._journal, history, after_step=self._version, train=self._replay_step)
        self._leader.publish_discriminator()
        held = self._leader.hold(self._publisher, self._version)
        self._turns.end(self._leader)
        self._compare(history.digests.get(self._version, held.digest), held.digest)
        batch = self._settings.batch
        staleness = self._settings.run.max_staleness
        algorithm = self._settings.algorithm
        ledger = Ledger(
            batch_groups=batch.groups,
            max_staleness=staleness,
            stale=self._settings.run.stale,
            dynamic_sampling=algorithm.dynamic_sampling,
            discard_limit=algorithm.discard_limit,
            fates=fates.values(),
        )
        code = code_digest(self._settings)
        journaled = self._runtime.open_ledger(
            ledger, records, version=self._version, digest=held.digest, code_digest=code, given_up=self._stop.asked
        )
        log.info("restored", checkpoint=began_with, version=self._version, incarnation=journaled.incarnation)
        for written in self._replayed:
            journaled.recorded(written)
        self._reporter().has_turn = lambda: self._turns.has
        if self._version and self._version not in history.done:
            journaled.step_done(self._version, held.digest)
        self._runtime.publish()
        self._checkpoint_schedule = CheckpointSchedule(
            self._settings, self._checkpoints, self._leader, journaled, self._reporter(), self._fail, code_digest=code
        )
        if self._version - began_with >= self._settings.trainer.checkpoint_every:
            self._checkpoint()
        return journaled

    def _compare(self, known: str, found: str) -> None:
        """Warns if the weights differ from, or cannot be compared with, those of the former life."""
        effect = "groups of the former life count as off-policy"
        same = same_weights(known, found)
        if same is False:
            log.warning("replay_diverged", step=self._version, effect=effect)
        elif same is None:
            algorithms = {"former": algorithm_of(known), "now": algorithm_of(found)}
            log.warning("replay_not_compared", step=self._version, effect=effect, **algorithms)

    def _load(self, checkpoint: Checkpoint) -> None:
        if checkpoint.state.config_digest != config_digest(self._settings):
            effect = "the same seed need not give the same weights"
            log.warning("config_changed", step=checkpoint.state.step, effect=effect)
        if checkpoint.state.code_digest != code_digest(self._settings):
            effect = "steps after the checkpoint may be replayed to other weights"
            log.warning("code_changed", step=checkpoint.state.step, effect=effect)
        self._leader.load(checkpoint)

    def _replay_step(self, step: int, batch: Sequence[ReadyGroup]) -> None:
        self._runtime.doing = f"replaying step {step}"
        phases = self._phases_of_training()
        with tracing.span("step", begins=True, step=step, replayed=True) as span, training(step, batch, span):
            outcome = self._leader.train(step, batch, self._stop.asked, phases=phases)
        self._trained(step, outcome)
        self._report_step(step, batch, outcome, replay_times(phases) | {"replayed": True, "incarnation": 0})

    def _one_step(self, step: int) -> None:
        with tracing.span("step", begins=True, step=step) as span:
            with self._phases("wait"):
                batch = self._wait_for_batch(step)
            if batch is None or not self._has_room(batch):
                return
            with self._phases("journal"):
                on_the_way = self._journal_batch(step, batch)
            if not self._begin_turn():
                return  # The batch is in the journal: the next life trains it.
            phases = self._phases_of_training()
            try:
                with self._phases(TRAIN), training(step, batch, span):
                    outcome = self._leader.train(step, batch, self._stop.asked, phases=phases)
                    self._trained(step, outcome)
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
        self._fail.reach("after_step", step)
        published = self._publish(step)
        numbers = step_times(self._phases.lap(), train)
        numbers |= {"replayed": False, "incarnation": self._ledger.incarnation}
        with self._phases("record"):
            self._report_step(step, batch, outcome, numbers, on_the_way)
        if published and step % self._settings.trainer.checkpoint_every == 0:
            self._checkpoint()
        elif published:
            self._checkpoint_if_asked()

    def _begin_turn(self) -> bool:
        """Waits until the engines sleep, if they share the GPUs; False if asked to stop."""
        if not self._turns.are_taken:
            return True
        with self._phases("turn"):
            return self._turns.begin(self._leader, self._stop.asked)

    def _end_turn(self) -> None:
        if self._turns.are_taken:
            with self._phases("turn"):
                self._turns.end(self._leader)

    def _phases_of_training(self) -> Phases:
        """Phases that start now, by the clock of the device that trains."""
        return Phases(clock_of(self._leader.policy.device), around=phase_span)

    def _journal_batch(self, step: int, batch: Sequence[ReadyGroup]) -> UntrainedGroups:
        """Journals the batch, then acks it; returns which groups were dropped on the way to it."""
        self._fail.reach("before_journal", step)
        on_the_way = self._ledger.journal_batch(step, batch)
        self._fail.reach("after_journal", step)
        self._runtime.ack([group.group_index for group in batch])
        self._fail.reach("after_ack", step)
        return on_the_way

    def _has_room(self, batch: Sequence[ReadyGroup]) -> bool:
        """Waits for room to journal the batch; False if asked to stop."""
        with self._phases("wait"):
            return wait_for_room(
                self._journal,
                batch,
                reserve_bytes=self._settings.trainer.disk_reserve_mib * MIB,
                limit_s=self._settings.trainer.batch_timeout_s,
                given_up=self._stop.asked,
                check=self._runtime.check,
                doing=self._doing,
            )

    def _wait_for_batch(self, step: int) -> tuple[ReadyGroup, ...] | None:
        return wait_for_batch(
            step,
            self._ledger,
            self._runtime,
            self._reporter(),
            limit_s=self._settings.trainer.batch_timeout_s,
            given_up=self._stop.asked,
            meanwhile=self._checkpoint_if_asked,
            doing=self._doing,
        )

    def _trained(self, step: int, outcome: StepOutcome) -> None:
        """Counts the step: the weights are those of its version."""
        self._version = step
        metrics.STEPS.inc()
        if outcome.metrics["skipped"]:
            metrics.STEPS_SKIPPED.inc()
            masked = not outcome.metrics["kept_share"]
            reason = "all of its tokens are over run.max_staleness" if masked else "the gradient was not finite"
            log.error("step_skipped", step=step, reason=reason)

    def _publish(self, step: int) -> bool:
        """Waits for the previous publication, takes the snapshot, and starts its own.

        False if asked to stop meanwhile: the step has ended all the same, but its weights are not published.
        """
        self._doing("the publication before to end", self._runtime.publication_limit_s)
        with self._phases("publication_wait"):
            ended = self._runtime.publication_ended(given_up=self._stop.asked)
        self._doing("")
        if self._settings.discriminator.every:
            # Before the policy's weights: rollouts sampled with them are scored by the discriminator of the same step.
            with self._phases("discriminator"):
                self._leader.publish_discriminator()
        with self._phases("snapshot"):
            held = self._leader.hold(self._publisher, step)
            self._end_turn()
            self._ledger.step_done(step, held.digest)
            metrics.POLICY_VERSION.set(step)
            self._fail.reach("before_publish", step)
            if ended:
                self._runtime.publish()
        return ended

    def _report_step(
        self,
        step: int,
        batch: Sequence[ReadyGroup],
        outcome: StepOutcome,
        numbers: Mapping[str, object],
        on_the_way: UntrainedGroups | None = None,
    ) -> None:
        """Reports the step to the orchestrator and writes its record."""
        line = self._record.line(step, batch, outcome, numbers, on_the_way)
        if not line["replayed"]:
            reporter = self._reporter()
            line |= step_speed(line, self._hardware, rollout_gpus=reporter.rollout_gpus)
            reporter.waiting_share = line["wait_batch_share"]
            reporter.step({key: float(value) for key, value in line.items()} | {"step": float(step)})
        written = self._record.write(step, batch, outcome, line)
        if line["replayed"]:
            self._replayed.append(written)
        else:
            self._ledger.recorded(written)

    def _checkpoint(self) -> None:
        with self._phases("checkpoint"):
            self._checkpoint_schedule.save(self._version)

    def _checkpoint_if_asked(self) -> None:
        if self._checkpoint_schedule.is_asked:
            with self._phases("checkpoint"):
                self._checkpoint_schedule.save_as_asked(self._version)

    def _finish(self) -> None:
        """Exports the model after the last step, reports it, and stays for evaluations that still read this version."""
        self._doing("the last publication to end", self._runtime.publication_limit_s)
        self._runtime.publication_ended(given_up=self._stop.asked)
        self._checkpoint()
        target = RunPaths(self._settings.run_dir).export
        digest = self._leader.export(target)
        self._ledger.exported(target, digest)
        log.info("exported", path=str(target), weights_sha256=digest)
        reporter = self._reporter()
        reporter.finished = True
        reporter.wake()
        self._doing("the last evaluation to end", self._settings.trainer.evaluation_timeout_s)
        end = time.monotonic() + self._settings.trainer.evaluation_timeout_s
        while reporter.evaluating and not self._stop.asked():
            self._runtime.check()
            if time.monotonic() > end:
                log.warning("evaluation_late", seconds=self._settings.trainer.evaluation_timeout_s)
                return
            time.sleep(_LOOK_S / 4)

    def _waits(self, what: str, left_s: float) -> None:
        """As `_doing`, but also usable before there is a reporter."""
        self._runtime.doing = what
        if self._runtime.reporter is not None:
            self._doing(what, left_s if what else None)

    def _doing(self, what: str, left_s: float | None = None) -> None:
        """Reports what the trainer waits for, and for how many more seconds at most."""
        self._runtime.doing = what
        reporter = self._reporter()
        reporter.waiting_for = what
        reporter.waiting_until = None if left_s is None else time.monotonic() + left_s

    def _reporter(self) -> Reporter:
        assert self._runtime.reporter is not None
        return self._runtime.reporter
