"""When a checkpoint is due, how it is copied and written beside the steps, and the disk space that the next ones need.

The training thread copies the state to host memory; a thread of its own writes the copy.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from headrace.services.trainer import metrics
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import Files
from headrace.services.trainer.durability.rank_shards import RankShards
from headrace.services.trainer.settings import ProcessKeys
from headrace.wire.errors import DataError
from headrace.wire.process import failpoints
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.receipts import take_receipt
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.checkpoint")


class CheckpointWriter:
    """Used by the training thread of a rank, between steps; each call raises the error of a write that has failed."""

    def __init__(
        self,
        store: CheckpointStore,
        ranks: Ranks,
        table: ProcessKeys,
        copy: Callable[[int], tuple[CheckpointState, Future[Files]]],
        events: EventLog | None,
        *,
        version: int = 0,
        before_it_shows: Callable[[], None] = lambda: None,
    ) -> None:
        """`copy`: prepares the folder of a version, and begins to copy what this rank writes.

        `version`: with which this life begins; `events` is None on other ranks than 0.
        """
        self._store, self._table, self._copy, self._events = store, table, copy, events
        self._before_it_shows = before_it_shows
        self._writer, self._shards = BackgroundWriter("the checkpoint"), RankShards(ranks)
        self._taken = -1
        """The last version whose checkpoint this life has taken: the end of a run saves it again."""
        self._waits = False
        """A checkpoint that is due waits for the one that is being written."""
        self._began, self._since = version, time.monotonic()
        """Version and time from which the next checkpoint's interval counts."""
        self._interval = table.checkpoint_steps
        """Steps of the last interval."""
        metrics.CHECKPOINT_EVERY.set(self._interval or math.inf)

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._writer.busy

    def check(self) -> None:
        """Raises the error of a write that has failed."""
        self._writer.check()

    def is_due(self, version: int) -> bool:
        """Whether to take a checkpoint after the step of `version`: by time not while one is written."""
        if self._table.checkpoint_steps:
            # Of exactly this step, which users name: it waits, if it must, in `save`.
            return version % self._table.checkpoint_steps == 0
        if time.monotonic() - self._since < self._table.checkpoint_seconds:
            # Not once it is due: an alert compares the steps since the newest one with this.
            metrics.CHECKPOINT_EVERY.set(max(self._interval, version - self._began))
            return False
        return not self.must_wait()

    def must_wait(self) -> bool:
        """Whether one is being written, for which one that is due waits; counts that once."""
        busy = self._writer.busy
        if busy and not self._waits:
            self._waits = True
            metrics.CHECKPOINTS_WAITED.inc()
        return busy

    def save(self, version: int, then: Callable[[], object]) -> None:
        """Copies the state of `version` and starts to write it; first waits for the one that is being written.

        `then` is called once it is recorded.
        """
        if version == self._taken:
            return
        with metrics.CHECKPOINTING(self._table.checkpoint_deadline_s):
            self.must_wait()
            self._writer.wait()
            copied = None if self._store.is_whole(version) else self._copy(version)
        if not self._table.checkpoint_steps:
            self._interval = version - self._began
        self._began, self._since = version, time.monotonic()
        self._taken, self._waits = version, False
        failpoints.reach("step.snapshot_taken")
        self._writer.start(lambda: self._write(version, copied, then))

    def wait(self) -> None:
        """Returns when none is being written."""
        with metrics.CHECKPOINTING(self._table.checkpoint_deadline_s):
            self._writer.wait()

    def _write(
        self, version: int, copied: tuple[CheckpointState, Future[Files]] | None, then: Callable[[], object]
    ) -> None:
        """Without a copy it is there already; its life may have been killed before it recorded it."""
        store, limit_s = self._store, self._table.checkpoint_deadline_s
        if self._events is None:
            if copied is not None:
                self._shards.write(store.aside(version), copied[1])
            return
        if copied is not None:
            state, files = copied
            begin = time.monotonic()
            show_room(store, writing=True)
            try:
                with metrics.CHECKPOINT_SECONDS.time():
                    store.save(
                        state,
                        files.result(),
                        ranks=self._shards.ranks,
                        others=lambda: self._shards.gather(store.aside(version), limit_s),
                        midway=self._before_it_shows,
                    )
            finally:
                show_room(store)
            if (seconds := time.monotonic() - begin) > limit_s:
                log.warning("checkpoint_late", step=version, seconds=round(seconds, 1), checkpoint_deadline_s=limit_s)
        failpoints.reach("step.before_trim")
        metrics.show_checkpoint(version, store.path(version))
        kept = [step for step, _ in store.published()]
        self._events.append("checkpoint_saved", step=version, manifest=store.manifest_digest(version), kept=kept)
        then()


def receipt_of(run_dir: Path, step: int) -> str:
    """Takes a receipt of the run's files; empty if that failed, which is logged and ends nothing."""
    try:
        taken = take_receipt(run_dir, step=step)
    except (OSError, DataError) as error:
        log.error("receipt_not_taken", step=step, error=str(error), effect="the next one covers the same bytes")
        return ""
    return "" if taken is None else taken.value


def show_room(store: CheckpointStore, *, writing: bool = False) -> None:
    """Updates the gauge; `writing`: one is being written, whose bytes are already missing from the free ones."""
    published = store.published()
    newest = _size(published[-1][1]) if published else 0
    metrics.CHECKPOINT_ROOM.set(room_bytes(newest, have=len(published), keep=store.keep, writing=writing))


def room_bytes(newest: int, *, have: int, keep: int, writing: bool) -> int:
    """Free bytes needed to go on keeping checkpoints of `newest` bytes; pure.

    Room for those still missing of the `keep`, for one written aside before the oldest is removed, and one to spare.
    """
    missing = max(keep - have, 0)
    return newest * (missing + 2 - writing)


def _size(folder: Path) -> int:
    """Bytes of the folder's files; 0 if it is removed meanwhile."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0
