"""The checkpoints of an RL run: scheduled ones, and those that an operator requests.

Once one is published, the journal is trimmed to what it covers.
"""

from concurrent.futures import Future
from functools import partial

from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import CheckpointWriter, receipt_of
from headrace.services.trainer.durability.host_copy import Files
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.learner.leader import Leader
from headrace.services.trainer.records.step_writer import StepWriter
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import config_digest
from headrace.wire.journal import prune_payloads
from headrace.wire.rundir.layout import RunPaths
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
        records: StepWriter,
        *,
        version: int = 0,
        code_digest: str = "",
    ) -> None:
        """`version`: with which this life begins; `code_digest`: of the user's own code, "" without."""
        self._settings, self._store, self._leader, self._ledger = settings, store, leader, ledger
        self._reporter, self._records, self._code_digest = reporter, records, code_digest
        self._writer = CheckpointWriter(
            store,
            leader.ranks,
            settings.trainer,
            self._copy,
            ledger.events,
            version=version,
            before_it_shows=self._before_it_shows,
        )

    def is_due(self, version: int, *, stepped: bool) -> bool:
        """Whether to take a checkpoint of `version` now; `stepped`: its step has just ended."""
        self.check()
        if stepped and self._writer.is_due(version):
            return True
        asked = self._reporter.checkpoint_asked > self._reporter.checkpoint_done
        if not asked or self._writer.must_wait():
            return False
        if version in {step for step, _ in self._store.published()}:
            self._report_done(self._reporter.checkpoint_asked)
            return False
        return True

    def check(self) -> None:
        """Raises the error of a write that has failed, a record's too."""
        self._records.check()
        self._writer.check()

    def save(self, version: int) -> None:
        """Copies the state of `version`, and starts to write it; first waits for the one that is being written."""
        self._writer.save(version, partial(self._written, version, self._reporter.checkpoint_asked))

    def finish(self, version: int, *, hurry: bool = False) -> None:
        """Returns when the checkpoint of `version` is written; in a `hurry` the one being written suffices."""
        if not (hurry and self._writer.busy):
            self.save(version)
        self._writer.wait()

    def receipt(self, version: int) -> str:
        """Takes a receipt of the run's files; empty if that failed."""
        try:
            self._ledger.fence()
        except OSError as error:
            log.error("receipt_not_taken", step=version, error=str(error), effect="the next one covers the same bytes")
            return ""
        return receipt_of(self._settings.run_dir, version)

    def _copy(self, version: int) -> tuple[CheckpointState, Future[Files]]:
        saved, progress = self._leader.save(self._store.prepare(version)), self._ledger.progress()
        above = self._ledger.progress(from_index=progress.frontier).fates
        return CheckpointState(
            step=version,
            incarnation=self._ledger.incarnation,
            frontier=progress.frontier,
            fates=tuple(fate for fate in above if fate.step <= version),
            coefficients=saved.coefficients,
            config_digest=config_digest(self._settings),
            code_digest=self._code_digest,
            weights_digest=self._ledger.weights_digest,
        ), saved.copied

    def _written(self, version: int, asked: int) -> None:
        """Removes the journal payloads that the oldest checkpoint covers, and their kept ids."""
        self.receipt(version)
        covered = self._store.covered_step()
        prune_payloads(RunPaths(self._settings.run_dir).journal, covered)
        remove_kept(self._settings.run_dir, lambda index: self._ledger.is_over(index, covered))
        if asked > self._reporter.checkpoint_done:
            self._report_done(asked)

    def _report_done(self, asked: int) -> None:
        self._reporter.checkpoint_done = asked
        self._reporter.wake()

    def _before_it_shows(self) -> None:
        """Checks the fence: a zombie must not replace its successor's checkpoint by its own."""
        self._records.settle(self._settings.trainer.checkpoint_deadline_s)
        self._ledger.fence()
