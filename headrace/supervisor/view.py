"""What a supervisor shows of its run."""

from dataclasses import dataclass
from enum import StrEnum

from headrace.wire.api.status import RunStatus


class MonitorState(StrEnum):
    """State of one process, as seen by the supervisor."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to start again"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class View:
    """State of the run, passed to the observer at each poll."""

    status: RunStatus | None
    """The orchestrator's status; None before the first answer, and for a stage without an orchestrator."""
    services: dict[str, str]
    """Name -> state of the process."""
    notices: tuple[str, ...]
    """All notices so far."""
    started: bool = True
    """Whether what does the work has started."""
