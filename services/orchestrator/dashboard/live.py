"""The live run as the dashboard sees it: its status and the operator requests."""

import time
from pathlib import Path
from typing import Any

from headrace.services.orchestrator.dashboard.bottleneck import bottleneck
from headrace.services.orchestrator.dashboard.ended import run_view
from headrace.services.orchestrator.dashboard.readers.records import RunLog
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.operator import Operator
from headrace.services.orchestrator.status import Status


class LiveRun:
    """Implements `RunSource` on the objects of the running orchestrator."""

    def __init__(
        self,
        run_dir: Path,
        run_id: str,
        status: Status,
        operator: Operator,
        publisher: PublicationCoordinator,
        log: RunLog,
    ) -> None:
        self._run_dir, self._run_id = run_dir, run_id
        self._status = status
        self._operator = operator
        self._publisher = publisher
        self._log = log

    def status(self) -> dict[str, Any]:
        """Implements `RunSource.status`: adds operator requests, time and bottleneck to `Status.view`."""
        view = self._status.view() | {
            "run": run_view(self._run_dir, self._run_id, self._log.began),
            "operator": self._operator.view(),
            "now": round(time.time(), 3),
        }
        return view | {"bottleneck": bottleneck(view)}

    def evals(self) -> list[dict[str, Any]]:
        """Implements `RunSource.evals`."""
        return self._status.evals()

    def replicas(self) -> list[dict[str, Any]]:
        """Implements `RunSource.replicas`."""
        return self._status.replicas()

    def trainer(self) -> dict[str, Any]:
        """Implements `RunSource.trainer`."""
        return self._status.trainer()

    def state(self) -> str:
        """Implements `RunSource.state`."""
        return self._status.state

    def streams(self) -> dict[str, dict[str, Any]]:
        """Implements `RunSource.streams`: as of the last housekeeping pass."""
        return self._status.streams_view()

    def publications(self) -> list[dict[str, Any]]:
        """Implements `RunSource.publications`: those in progress first, then those of the event log."""
        now = [progress.timeline() | {"ended": False} for progress in self._publisher.sessions]
        return [*sorted(now, key=lambda one: -float(one["began"])), *self._log.publications]
