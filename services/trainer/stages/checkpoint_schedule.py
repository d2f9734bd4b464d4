"""The checkpoints of an RL run: scheduled ones, and those that an operator requests.

The training thread copies the state to host memory; a thread of its own writes the copy, and trims the journal to it
once it is published.
"""

import math
import time

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import checkpointing
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.rank_shards import RankShards
from headrace.services.trainer.learner.leader import Leader
from headrace.services.trainer.learner.learner import Saved
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import config_digest
from headrace.wire.errors import DataError
from headrace.wire.journal import prune_payloads
from headrace.wire.process import failpoints
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.receipts import take_receipt
from headrace.wire.streams.columns import remove_kept
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.checkpoint")


class CheckpointSchedule:
    """Takes checkpoints. Used by the main thread only, between steps; each call raises the error of a failed write."""

    def __init__(
        self,
        settings: TrainerSettings,
        store: CheckpointStore,
        leader: Leader,
        ledger: JournaledLedger,
        reporter: Reporter,
        *,
        version: int = 0,
        code_digest: str = "",
    ) -> None:
        """`version`: with which this life begins; `code_digest`: of the user's own code, "" without."""
        self._settings = settings
        self._store = store
        self._leader = leader
        self._ledger = ledger
        self._reporter = reporter
        self._code_digest = code_digest
        self._writer, self._shards = BackgroundWriter(), RankShards(leader.ranks)
        self._taken = -1
        """The last version whose checkpoint this life has taken: the end of a run saves it again."""
        self._waits = False
        """A checkpoint that is due waits for the one that is being written."""
        self._began, self._since = version, time.monotonic()
        """Version and time from which the next checkpoint's interval counts."""
        self._interval = settings.trainer.checkpoint_steps
        """Steps of the last interval."""
        metrics.CHECKPOINT_EVERY.set(self._interval or math.inf)

    def is_due(self, version: int, *, stepped: bool) -> bool:
        """Whether to take a checkpoint of `version` now; `stepped`: its step has just ended."""
        self.check()
        steps = self._settings.trainer.checkpoint_steps
        if stepped and steps and version % steps == 0:
            # Of exactly this step, which users name: it waits, if it must, in `save`.
            return True
        asked = self._reporter.checkpoint_asked > self._reporter.checkpoint_done
        if not asked and not (stepped and not steps and self._time_is_over(version)):
            return False
        if self._writer.busy:
            self._count_wait()
            return False
        if asked and version in {step for step, _ in self._store.published()}:
            self._report_done(self._reporter.checkpoint_asked)
            return False
        return True

    def _time_is_over(self, version: int) -> bool:
        if time.monotonic() - self._since >= self._settings.trainer.checkpoint_seconds:
            return True
        # Not once it is due: an alert compares the steps since the newest one with this.
        metrics.CHECKPOINT_EVERY.set(max(self._interval, version - self._began))
        return False

    def check(self) -> None:
        """Raises the error of a write that has failed."""
        self._writer.check()

    def save(self, version: int) -> None:
        """Copies the state of `version`, and starts to write it; first waits for the one that is being written."""
        if version == self._taken:
            return
        with metrics.CHECKPOINTING(self._settings.trainer.checkpoint_deadline_s):
            if self._writer.busy:
                self._count_wait()
            self._writer.wait()
            asked = self._reporter.checkpoint_asked
            taken = None if self._store.is_whole(version) else self._copy(version)
        if not self._settings.trainer.checkpoint_steps:
            self._interval = version - self._began
        self._began, self._since = version, time.monotonic()
        self._taken, self._waits = version, False
        failpoints.reach("step.snapshot_taken")
        self._writer.start(lambda: self._write(version, taken, asked))

    def finish(self, version: int, *, hurry: bool = False) -> None:
        """Returns when the checkpoint of `version` is written; in a `hurry` the one being written suffices."""
        if not (hurry and self._writer.busy):
            self.save(version)
        with metrics.CHECKPOINTING(self._settings.trainer.checkpoint_deadline_s):
            self._writer.wait()

    def _count_wait(self) -> None:
        if not self._waits:
            self._waits = True
            metrics.CHECKPOINTS_WAITED.inc()

    def _copy(self, version: int) -> tuple[Saved, CheckpointState]:
        saved = self._leader.save(self._store.prepare(version))
        progress = self._ledger.progress()
        above = self._ledger.progress(from_index=progress.frontier).fates
        return saved, CheckpointState(
            step=version,
            incarnation=self._ledger.incarnation,
            frontier=progress.frontier,
            fates=tuple(fate for fate in above if fate.step <= version),
            coefficients=saved.coefficients,
            config_digest=config_digest(self._settings),
            code_digest=self._code_digest,
            weights_digest=self._ledger.weights_digest,
        )

    def _write(self, version: int, taken: tuple[Saved, CheckpointState] | None, asked: int) -> None:
        """Publishes the checkpoint, then removes the journal payloads that the oldest one covers, and their kept ids.

        Without a copy it is there already; its life may have been killed before it recorded it.
        """
        limit_s = self._settings.trainer.checkpoint_deadline_s
        if taken is not None:
            saved, state = taken
            with checkpointing(self._store, step=version, limit_s=limit_s):
                self._store.save(
                    state,
                    saved.files,
                    ranks=self._shards.ranks,
                    others=lambda: self._shards.gather(self._store.aside(version), limit_s),
                    midway=self._before_it_shows,
                )
        failpoints.reach("step.before_trim")
        metrics.show_checkpoint(version, self._store.path(version))
        kept = [step for step, _ in self._store.published()]
        self._ledger.checkpoint_saved(version, self._store.manifest_digest(version), kept)
        self.receipt(version)
        covered = self._store.covered_step()
        prune_payloads(RunPaths(self._settings.run_dir).journal, covered)
        remove_kept(self._settings.run_dir, lambda index: self._ledger.is_over(index, covered))
        if asked > self._reporter.checkpoint_done:
            self._report_done(asked)

    def _report_done(self, asked: int) -> None:
        self._reporter.checkpoint_done = asked
        self._reporter.wake()

    def receipt(self, version: int) -> str:
        """Takes a receipt of the run's files; empty if that failed, which is logged and ends nothing."""
        try:
            self._ledger.fence()
            taken = take_receipt(self._settings.run_dir, step=version)
        except (OSError, DataError) as error:
            log.error("receipt_not_taken", step=version, error=str(error), effect="the next one covers the same bytes")
            return ""
        return "" if taken is None else taken.value

    def _before_it_shows(self) -> None:
        """Checks the fence: a zombie must not replace its successor's checkpoint by its own."""
        failpoints.reach("step.mid_checkpoint")
        self._ledger.fence()
