"""What a stage without a journal records for `headrace check`: its config, checkpoints, model and receipts."""

from collections.abc import Sequence
from pathlib import Path

from headrace.wire.errors import DataError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests, sha256_of_files
from headrace.wire.rundir.receipts import take_receipt
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.stage")


class StageEvents:
    """The event log of all lives of a stage; rank 0 writes it."""

    def __init__(self, run_dir: Path, stage: str, step: int) -> None:
        """`step`: the one after which this life begins. Raises OSError."""
        self._run_dir = run_dir
        self._events = EventLog(run_dir, "trainer", stage)
        self._events.append("stage_began", step=step, config=config_digests(run_dir))

    def checkpoint_saved(self, step: int, manifest: str, kept: Sequence[int]) -> None:
        """Records a checkpoint: the digest of its manifest, and the steps of those that are kept."""
        self._events.append("checkpoint_saved", step=step, manifest=manifest, kept=list(kept))

    def exported(self, step: int, path: Path, weights_sha256: str) -> None:
        """Records that the model after `step` is written, with the digest of each file. Raises OSError."""
        files = sha256_of_files(path)
        self._events.append("exported", path=str(path), weights_sha256=weights_sha256, step=step, files=files)

    def receipt(self, step: int) -> str:
        """Takes a receipt of the run's files; empty if that failed, which is logged and ends nothing."""
        try:
            taken = take_receipt(self._run_dir, step=step)
        except (OSError, DataError) as error:
            log.error("receipt_not_taken", step=step, error=str(error), effect="the next one covers the same bytes")
            return ""
        return "" if taken is None else taken.value

    def close(self) -> None:
        """Closes the log."""
        self._events.close()
