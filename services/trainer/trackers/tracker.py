"""The interface of a tracker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from headrace.services.trainer.config.trackers import TrackersTable
from headrace.services.trainer.trackers.completions import Rows

Kind = Literal["train", "eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The run that a tracker records."""

    run_id: str
    name: str
    folder: Path
    """RUN/trackers."""
    table: TrackersTable


class Tracker(Protocol):
    """An adapter to a tracking library. Each call may raise anything, or take or hang as long as it likes.

    It runs on a thread of its own. Times are unix seconds. Numbers are finite.
    """

    def start(self, config: Mapping[str, object], previous: str) -> str:
        """Opens the tracker's run, or reopens `previous` (empty = none); returns its identifier for a later life."""
        ...

    def log(self, kind: Kind, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Takes the numbers of an optimizer step (`train`), or of an evaluation of a version (`eval`).

        Steps after that version may have come before its evaluation.
        """
        ...

    def log_completions(self, step: int, rows: Rows) -> None:
        """Takes some rollouts of a step, as a table."""
        ...

    def log_receipt(self, step: int, receipt: str) -> None:
        """Takes the receipt of the run's files after its last step, as text; `headrace check --receipt` proves it."""
        ...

    def finish(self) -> None:
        """Sends what it still holds."""
        ...
