"""The folder `RUN/rollouts`, bounded in size. It is for people: no error in it ever ends a run."""

import time
from collections.abc import Sequence
from pathlib import Path

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UNBOUNDED
from headrace.services.trainer.records.rollout_log import write_rollouts
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.errors import DataError
from headrace.wire.rundir import atomic, rollouts
from headrace.wire.rundir.file_digests import sha256_of
from headrace.wire.rundir.layout import rollout_file
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.rollouts")

_MIB = 1024 * 1024
_SAY_AGAIN_S = 60.0


class RolloutFolder:
    """Removes the files of the oldest steps beyond the bound; the newest step's stays."""

    def __init__(self, folder: Path, *, keep_mib: float, most_lag: int = UNBOUNDED) -> None:
        """Keeps `keep_mib` MiB; 0 = all. Tokens of a lag above `most_lag` were not trained."""
        self._folder = folder
        self._most_lag = most_lag
        self._keep_bytes = keep_mib * _MIB
        self._sizes: dict[int, int] | None = None
        """Bytes by step; None before the first look."""
        self._say_at = 0.0
        self._is_swept = False

    def add(
        self,
        step: int,
        batch: Sequence[ReadyGroup],
        outcome: StepOutcome,
        *,
        replayed: bool = False,
    ) -> str:
        """Writes a step's file as `write_rollouts` does; a failed write is logged and counted.

        Returns the file's hex sha256, empty if it was not written. The whole file of an earlier life stays if the step
        is `replayed`: its digest is recorded.
        """
        path = rollout_file(self._folder, step)
        try:
            if not self._is_swept:
                atomic.remove_left_overs(self._folder)
                self._is_swept = True
            if not replayed or not _has_groups(path, batch):
                write_rollouts(self._folder, step, batch, outcome, most_lag=self._most_lag)
            if self._keep_bytes:
                self._make_room(step, path.stat().st_size)
            return sha256_of(path)
        except OSError as error:
            metrics.ROLLOUTS_UNWRITTEN.inc()
            now = time.monotonic()
            if now >= self._say_at:
                self._say_at = now + _SAY_AGAIN_S
                log.error("rollouts_not_written", step=step, error=str(error))
            return ""

    @property
    def oldest(self) -> int:
        """Lowest step whose file is kept; 0 if all are."""
        return min(self._sizes) if self._sizes else 0

    def _make_room(self, step: int, size: int) -> None:
        if self._sizes is None:
            self._sizes = {step: found.st_size for step, found in rollouts.files(self._folder).items()}
        self._sizes[step] = size
        total, newest = sum(self._sizes.values()), max(self._sizes)
        for oldest in sorted(self._sizes):
            if total <= self._keep_bytes or oldest == newest:
                return
            rollout_file(self._folder, oldest).unlink(missing_ok=True)
            total -= self._sizes.pop(oldest)


def _has_groups(path: Path, batch: Sequence[ReadyGroup]) -> bool:
    """Whether there is a readable file with the rollouts of the batch."""
    try:
        names = rollouts.read(path, ("group_id",)).column("group_id").to_pylist()
    except (DataError, KeyError):
        return False
    found: list[str] = names
    return found == [group.group_id for group in batch for _ in group.scored.scores]
