"""What a tracker is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.trainer.tracker_settings import TrackersTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which run a tracker is to be told of."""

    run_id: str
    name: str
    folder: Path
    """RUN/trackers."""
    table: TrackersTable


class Tracker(Protocol):
    """Each call may raise whatever its library raises, and may take or hang as long as it likes: it has its own thread.

    Times are unix seconds. Numbers are finite.
    """

    def start(self, config: Mapping[str, Any], previous: str) -> str:
        """Opens the tracker's run, or `previous` again (empty = there is none); returns what names it for later."""
        ...

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Takes the numbers of an optimizer step."""
        ...

    def log_eval(self, version: int, numbers: Mapping[str, float], at: float) -> None:
        """Takes the numbers of an evaluation of the held-out prompts; steps after `version` may have come before."""
        ...

    def finish(self) -> None:
        """Sends what it still holds."""
        ...
