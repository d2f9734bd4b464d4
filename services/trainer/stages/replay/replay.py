"""Trains journaled batches again, without engines, broker or orchestrator.

With the run's own settings each step gives the run's weights; with others, what would have come of the same rollouts.
Nothing is written into the run's directory.
"""

import shutil
import time
from collections.abc import Sequence

from headrace.services.trainer.config.replay import ReplaySettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import rank_device
from headrace.services.trainer.durability.checkpoint import load_checkpoint
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.learner.leader import LOAD, Followers, Leader
from headrace.services.trainer.records.step_record import TrainedStep
from headrace.services.trainer.stages.follower import make_rank_processes
from headrace.services.trainer.stages.parts import load_learner, make_publisher, make_record
from headrace.services.trainer.stages.replay.source import ReplaySource, hold_source
from headrace.services.trainer.stages.restore import journaled_groups
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.wire.contracts.digests import same_weights
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import sha256_of_files
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.replay")


class Replay:
    """One replay, on rank 0; the other ranks follow as in a run."""

    def __init__(self, settings: ReplaySettings, stop: StopSignal) -> None:
        self._settings, self._stop = settings, stop
        self._record = make_record(settings)
        self._events = EventLog(settings.run_dir, "trainer", "replay")
        self._publisher = make_publisher(settings)

    def run(self) -> TrainingEnd:
        """Trains all steps of the plan, or those up to the stop signal; returns how that ended.

        Raises ConfigError for steps that cannot be replayed, before any model is loaded.
        """
        held = RunPaths(self._settings.run_dir).replay_source
        source = hold_source(self._settings.replay, held)
        with make_rank_processes(self._settings, self._stop).joined() as ranks:
            end = self._train(source, ranks)
        shutil.rmtree(held)
        return end

    def _train(self, source: ReplaySource, ranks: Ranks) -> TrainingEnd:
        followers = Followers(ranks)
        followers.send(LOAD)
        learner = load_learner(self._settings, ranks, rank_device(self._settings.run.device, 0))
        self._leader = Leader(learner, followers)
        if source.checkpoint is not None:
            self._leader.load(load_checkpoint(source.checkpoint))
        plan, history = source.plan, source.history
        self._events.append("replay_began", version=plan.after, last=plan.last)
        # A signal after the last step ends nothing.
        end = TrainingEnd.FINISHED
        try:
            for step in range(plan.after + 1, plan.last + 1):
                batch = journaled_groups(source.journal, history.batches[step])
                self._step(step, batch, history.digests.get(step, ""))
        except StepInterruptedError:
            end = TrainingEnd.INTERRUPTED
            log.info("stopped", reason="asked to")
        else:
            self._finish()
        followers.stop(end)
        self._events.close()
        return end

    def _step(self, step: int, batch: Sequence[ReadyGroup], known: str) -> None:
        began = time.monotonic()
        outcome = self._leader.train(step, batch, self._stop.asked)
        digest = self._leader.hold(self._publisher, step).digest
        self._events.append("step_done", step=step, weights_digest=digest, weights_digest_of_run=known)
        same = same_weights(digest, known) if known else None
        numbers = {"seconds": time.monotonic() - began, "replayed": True}
        trained = TrainedStep(step, batch, outcome, numbers | ({} if same is None else {"weights_as_in_run": same}))
        self._record.write(trained, self._record.line(trained))

    def _finish(self) -> None:
        if self._settings.replay.export:
            target = RunPaths(self._settings.run_dir).export
            digest = self._leader.export(target)
            self._events.append("exported", path=str(target), weights_sha256=digest, files=sha256_of_files(target))
