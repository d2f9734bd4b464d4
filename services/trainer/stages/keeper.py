"""The checkpoints of an RL run: those that are due, and those that an operator wants."""

from services.trainer import metrics
from services.trainer.book import Book
from services.trainer.checkpoint import CheckpointState, CheckpointStore
from services.trainer.checkpointing import checkpointing
from services.trainer.failpoints import Failpoints
from services.trainer.leader import Leader
from services.trainer.reporter import Reporter
from services.trainer.settings import TrainerSettings
from services.trainer.stages.parts import config_digest
from wire.journal import prune_payloads


class Keeper:
    """Used by the main thread alone, between steps."""

    def __init__(
        self,
        settings: TrainerSettings,
        store: CheckpointStore,
        leader: Leader,
        book: Book,
        reporter: Reporter,
        fail: Failpoints,
    ) -> None:
        self._settings = settings
        self._store = store
        self._leader = leader
        self._book = book
        self._reporter = reporter
        self._fail = fail

    def save(self, version: int) -> None:
        """Publishes the checkpoint of `version`, and lets go of the payloads that the oldest one covers."""
        with checkpointing(self._store, step=version, limit_s=self._settings.trainer.checkpoint_deadline_s):
            self._save(version)

    def _save(self, version: int) -> None:
        saved = self._leader.save()
        progress = self._book.progress()
        above = self._book.progress(from_index=progress.frontier).fates
        state = CheckpointState(
            step=version,
            incarnation=self._book.incarnation,
            frontier=progress.frontier,
            fates=tuple(fate for fate in above if fate.step <= version),
            coefficients=saved.coefficients,
            config_digest=config_digest(self._settings),
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
        prune_payloads(self._settings.run_dir / "journal", self._store.covered_step())

    @property
    def is_asked(self) -> bool:
        """Whether an operator waits for one."""
        return self._reporter.checkpoint_asked > self._reporter.checkpoint_done

    def save_as_asked(self, version: int) -> None:
        """The one that an operator wants; it may be there already."""
        asked = self._reporter.checkpoint_asked
        if version not in {step for step, _ in self._store.published()}:
            self.save(version)
        self._reporter.checkpoint_done = asked
        self._reporter.wake()

    def _before_it_shows(self, step: int) -> None:
        """A zombie must not put its checkpoint in the place of its successor's."""
        self._fail.reach("mid_checkpoint", step)
        self._book.fence()
