"""The checkpoints of an RL run: scheduled ones, and those that an operator requests."""

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import checkpointing
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.learner.leader import Leader
from headrace.services.trainer.reporter import Reporter
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import config_digest
from headrace.wire.errors import DataError
from headrace.wire.journal import prune_payloads
from headrace.wire.process import failpoints
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.receipts import take_receipt
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.checkpoint")


class CheckpointSchedule:
    """Writes checkpoints. Used by the main thread only, between steps."""

    def __init__(
        self,
        settings: TrainerSettings,
        store: CheckpointStore,
        leader: Leader,
        ledger: JournaledLedger,
        reporter: Reporter,
        *,
        code_digest: str = "",
    ) -> None:
        """`code_digest`: of the user's own code, "" without."""
        self._settings = settings
        self._store = store
        self._leader = leader
        self._ledger = ledger
        self._reporter = reporter
        self._code_digest = code_digest
        self._recorded = -1
        """The last version whose checkpoint this life has recorded: the end of a run saves it again."""

    def save(self, version: int) -> None:
        """Writes the checkpoint of `version`, and removes the journal payloads that the oldest one covers."""
        with checkpointing(self._store, step=version, limit_s=self._settings.trainer.checkpoint_deadline_s):
            self._save(version)

    def _save(self, version: int) -> None:
        saved = self._leader.save()
        progress = self._ledger.progress()
        above = self._ledger.progress(from_index=progress.frontier).fates
        state = CheckpointState(
            step=version,
            incarnation=self._ledger.incarnation,
            frontier=progress.frontier,
            fates=tuple(fate for fate in above if fate.step <= version),
            coefficients=saved.coefficients,
            config_digest=config_digest(self._settings),
            code_digest=self._code_digest,
            weights_digest=self._ledger.weights_digest,
        )
        with metrics.CHECKPOINT_SECONDS.time():
            path = self._store.save(
                state,
                weights=saved.weights,
                optimizer=saved.optimizer,
                others=saved.others,
                midway=lambda: self._before_it_shows(version),
            )
        metrics.show_checkpoint(version, path)
        if self._recorded != version:
            kept = [step for step, _ in self._store.published()]
            self._ledger.checkpoint_saved(version, self._store.manifest_digest(version), kept)
            self.receipt(version)
            self._recorded = version
        prune_payloads(RunPaths(self._settings.run_dir).journal, self._store.covered_step())

    def receipt(self, version: int) -> str:
        """Takes a receipt of the run's files; empty if that failed, which is logged and ends nothing."""
        try:
            self._ledger.fence()
            taken = take_receipt(self._settings.run_dir, step=version)
        except (OSError, DataError) as error:
            log.error("receipt_not_taken", step=version, error=str(error), effect="the next one covers the same bytes")
            return ""
        return "" if taken is None else taken.value

    @property
    def is_asked(self) -> bool:
        """Whether an operator has requested a checkpoint that is not done."""
        return self._reporter.checkpoint_asked > self._reporter.checkpoint_done

    def save_as_asked(self, version: int) -> None:
        """Writes the requested checkpoint, unless it exists already, and reports it done."""
        asked = self._reporter.checkpoint_asked
        if version not in {step for step, _ in self._store.published()}:
            self.save(version)
        self._reporter.checkpoint_done = asked
        self._reporter.wake()

    def _before_it_shows(self, step: int) -> None:
        """Checks the fence: a zombie must not replace its successor's checkpoint by its own."""
        failpoints.reach("step.mid_checkpoint")
        self._ledger.fence()
