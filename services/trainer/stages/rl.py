"""The RL stage: restores a run, trains its new steps (`step_loop.py`), and ends it.

The order is law: the journal has the batch, durably, before its groups are acked, and they are acked before the
optimizer steps. The step runs in the main thread; everything else in the background.
"""

from collections.abc import Sequence

from headrace.services.trainer import metrics
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import rank_device
from headrace.services.trainer.durability.checkpoint import Checkpoint
from headrace.services.trainer.durability.checkpointing import show_room
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger, RecordedStep
from headrace.services.trainer.durability.ledger import Ledger, ReadyGroup
from headrace.services.trainer.learner.leader import LOAD, Followers, Leader
from headrace.services.trainer.records.step_record import TrainedStep
from headrace.services.trainer.records.step_trace import training
from headrace.services.trainer.records.step_writer import StepWriter
from headrace.services.trainer.runtime.runtime import BrokerMaker
from headrace.services.trainer.runtime.token_limits import TokenLimits
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.checkpoint_schedule import CheckpointSchedule
from headrace.services.trainer.stages.follower import AWAITING_RANKS, make_rank_processes
from headrace.services.trainer.stages.life import begin_life
from headrace.services.trainer.stages.own_functions import code_digest
from headrace.services.trainer.stages.parts import config_digest, load_learner
from headrace.services.trainer.stages.restore import JournaledHistory, read_history, replay
from headrace.services.trainer.stages.step_loop import StepLoop, count_step, training_phases
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.services.trainer.throughput.hardware import read_hardware
from headrace.services.trainer.timing.step_times import replay_times
from headrace.services.trainer.trackers import make_trackers
from headrace.wire import tracing
from headrace.wire.contracts.digests import algorithm_of, same_weights
from headrace.wire.errors import ConfigError
from headrace.wire.journal import JournalRecord, read_journal
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.rl")


class RlStage:
    """One life of the trainer."""

    def __init__(self, settings: TrainerSettings, make_broker: BrokerMaker, stop: StopSignal) -> None:
        self._life = begin_life(settings, make_broker, stop)
        self._settings, self._stop, self._runtime = settings, stop, self._life.runtime
        self._trackers = make_trackers(settings, settings.trackers)
        self._restored = 0
        """The version that checkpoint and replay have brought the weights to."""
        self._replayed: list[RecordedStep] = []
        """Steps that were replayed before this life had an event log."""
        self._steps: StepLoop | None = None
        """The new steps; None until everything is restored."""
        self._receipt = ""

    @property
    def _version(self) -> int:
        return self._restored if self._steps is None else self._steps.version

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
                self._steps = steps = self._begin(ranks, followers)
                while steps.version < self._settings.run.max_steps and not self._stop.asked():
                    steps.one()
                end = self._end(steps)
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

    def _begin(self, ranks: Ranks, followers: Followers) -> StepLoop:
        """Loads and restores on all ranks. Raises StepInterruptedError when asked to stop before it is done."""
        life = self._life
        if not life.turns.begin(None, self._stop.asked):
            raise StepInterruptedError("asked to stop before the GPU was free")
        life.doing("loading the model")
        followers.send(LOAD)
        device = rank_device(self._settings.run.device, 0)
        leader = Leader(load_learner(self._settings, ranks, device), followers)
        journal = RunPaths(self._settings.run_dir).journal
        records = list(read_journal(journal)) if journal.is_dir() else []
        if not self._settings.trainer.resume and (records or life.checkpoints.published()):
            raise ConfigError(f"{self._settings.run_dir} holds a run already: resume it, or choose another run_dir")
        history = read_history(records)
        checkpoint = life.checkpoints.newest()
        self._restore(leader, history, checkpoint)
        ledger = self._register(leader, history, checkpoint, records)
        code = code_digest(self._settings)
        assert self._runtime.reporter is not None
        reporter = self._runtime.reporter
        hardware = read_hardware(device, ranks.size, peak_tflops=self._settings.trainer.peak_tflops)
        writer = StepWriter(life.record, reporter, ledger, hardware)
        began_with = _step_of(checkpoint)
        schedule = CheckpointSchedule(
            self._settings, life.checkpoints, leader, ledger, reporter, writer, version=began_with, code_digest=code
        )
        steps = StepLoop(life, leader, ledger, reporter, schedule, writer, version=self._restored)
        # By time: at once, or lives that are shorter than it would replay more and more.
        if self._restored - began_with >= (self._settings.trainer.checkpoint_steps or 1):
            steps.checkpoint()
        # The time before is not part of the first step.
        life.phases.lap()
        return steps

    def _restore(self, leader: Leader, history: JournaledHistory, checkpoint: Checkpoint | None) -> None:
        """Loads the newest checkpoint, and trains the journaled steps after it again."""
        if checkpoint is not None:
            self._compare_settings(checkpoint)
            leader.load(checkpoint)
            metrics.show_checkpoint(checkpoint.state.step, checkpoint.path)
            show_room(self._life.checkpoints)
        self._restored = _step_of(checkpoint)

        def train(step: int, batch: Sequence[ReadyGroup]) -> None:
            self._replay_step(leader, step, batch)

        replay(RunPaths(self._settings.run_dir).journal, history, after_step=self._restored, train=train)
        leader.publish_discriminator()

    def _register(
        self,
        leader: Leader,
        history: JournaledHistory,
        checkpoint: Checkpoint | None,
        records: Sequence[JournalRecord],
    ) -> JournaledLedger:
        """Opens an incarnation with the fates of all groups so far, and publishes the restored weights."""
        settings, version = self._settings, self._restored
        held = leader.hold(self._life.publisher, version)
        self._life.turns.end(leader)
        self._compare_weights(history.digests.get(version, held.digest), held.digest)
        fates = {fate.group_index: fate for fate in history.fates}
        if checkpoint is not None:
            fates = {fate.group_index: fate for fate in checkpoint.state.fates} | fates
        ledger = Ledger(
            batch_groups=settings.batch.groups,
            max_staleness=settings.run.max_staleness,
            stale=settings.run.stale,
            dynamic_sampling=settings.algorithm.dynamic_sampling,
            discard_limit=settings.algorithm.discard_limit,
            fates=fates.values(),
        )
        journaled = self._runtime.open_ledger(
            ledger,
            records,
            version=version,
            digest=held.digest,
            limits=TokenLimits.of(leader.policy.module, settings.context_length),
            code_digest=code_digest(settings),
            given_up=self._stop.asked,
        )
        began_with = _step_of(checkpoint)
        log.info("restored", checkpoint=began_with, version=version, incarnation=journaled.incarnation)
        for written in self._replayed:
            journaled.recorded(written)
        assert self._runtime.reporter is not None
        self._runtime.reporter.has_turn = lambda: self._life.turns.has
        if version and version not in history.done:
            journaled.step_done(version, held.digest)
        self._runtime.publish()
        return journaled

    def _replay_step(self, leader: Leader, step: int, batch: Sequence[ReadyGroup]) -> None:
        self._life.doing(f"replaying step {step}")
        phases = training_phases(leader)
        with tracing.span("step", begins=True, step=step, replayed=True) as span, training(step, batch, span):
            outcome = leader.train(step, batch, self._stop.asked, phases=phases)
        self._restored = step
        count_step(step, outcome)
        numbers = replay_times(phases) | {"replayed": True, "incarnation": 0}
        trained = TrainedStep(step, batch, outcome, numbers)
        self._replayed.append(self._life.record.write(trained, self._life.record.line(trained)))

    def _compare_settings(self, checkpoint: Checkpoint) -> None:
        """Warns if the config or the user's own code differs from the checkpoint's."""
        step = checkpoint.state.step
        if checkpoint.state.config_digest != config_digest(self._settings):
            log.warning("config_changed", step=step, effect="the same seed need not give the same weights")
        if checkpoint.state.code_digest != code_digest(self._settings):
            effect = "steps after the checkpoint may be replayed to other weights"
            log.warning("code_changed", step=step, effect=effect)

    def _compare_weights(self, known: str, found: str) -> None:
        """Warns if the weights differ from, or cannot be compared with, the former life's."""
        effect = "groups of the former life count as off-policy"
        same = same_weights(known, found)
        if same is False:
            log.warning("replay_diverged", step=self._restored, effect=effect)
        elif same is None:
            algorithms = {"former": algorithm_of(known), "now": algorithm_of(found)}
            log.warning("replay_not_compared", step=self._restored, effect=effect, **algorithms)

    def _end(self, steps: StepLoop) -> TrainingEnd:
        finished = not self._stop.asked()
        if finished:
            steps.finish()
        else:
            steps.stop()
            log.info("stopped", version=steps.version)
        self._receipt = steps.receipt()
        # After the last step a stop may also arrive while the last evaluations are awaited.
        return self._report_end(finished=finished)

    def _report_end(self, *, finished: bool) -> TrainingEnd:
        """Reports an operator's stop, if there is one; returns how training ended, `finished` or not.

        An operator's stop stays one even if signals follow it, such as the one by which the run's command ends.
        """
        by_operator = self._runtime.report_stopped()
        # Without an operator, a signal may have come before the orchestrator received the end: the next life does that.
        if finished and (by_operator or not self._stop.signalled):
            return TrainingEnd.FINISHED
        return TrainingEnd.STOPPED if by_operator else TrainingEnd.INTERRUPTED


def _step_of(checkpoint: Checkpoint | None) -> int:
    return 0 if checkpoint is None else checkpoint.state.step
