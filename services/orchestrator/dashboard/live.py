"""The live run as the dashboard sees it: its status, and what operators have asked for."""

import time
from pathlib import Path
from typing import Any

from services.orchestrator.dashboard.bottleneck import bottleneck
from services.orchestrator.dashboard.ended import run_view
from services.orchestrator.dashboard.records import RunLog
from services.orchestrator.operator import Operator
from services.orchestrator.publication import Publisher
from services.orchestrator.status import Status


class LiveRun:
    """See `Source`."""

    def __init__(
        self, run_dir: Path, run_id: str, status: Status, operator: Operator, publisher: Publisher, log: RunLog
    ) -> None:
        self._run_dir, self._run_id = run_dir, run_id
        self._status = status
        self._operator = operator
        self._publisher = publisher
        self._log = log

    def status(self) -> dict[str, Any]:
        """See `Source`."""
        view = self._status.view() | {
            "run": run_view(self._run_dir, self._run_id, self._log.began),
            "operator": self._operator.view(),
            "now": round(time.time(), 3),
        }
        return view | {"bottleneck": bottleneck(view)}

    def evals(self) -> list[dict[str, Any]]:
        """See `Source`."""
        return self._status.evals()

    def replicas(self) -> list[dict[str, Any]]:
        """See `Source`."""
        return self._status.replicas()

    def trainer(self) -> dict[str, Any]:
        """See `Source`."""
        return self._status.trainer()

    def state(self) -> str:
        """See `Source`."""
        return self._status.state

    def streams(self) -> dict[str, dict[str, Any]]:
        """See `Source`."""
        return self._status.streams_view()

    def publications(self) -> list[dict[str, Any]]:
        """See `Source`: those under way first."""
        now = [progress.timeline() | {"ended": False} for progress in self._publisher.sessions]
        return [*sorted(now, key=lambda one: -float(one["began"])), *self._log.publications]
