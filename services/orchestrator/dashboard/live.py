"""The live run as the dashboard sees it: its status and the operator requests."""

from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.whole_status import run_identity, whole_status
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.operator import Operator
from headrace.services.orchestrator.status import Status
from headrace.wire.api.fleet import PublicationTimeline
from headrace.wire.api.status import RunStatus


class LiveRun:
    """Implements `RunSource` on the objects of the running orchestrator."""

    def __init__(
        self,
        run_id: str,
        status: Status,
        operator: Operator,
        publisher: PublicationCoordinator,
        files: Files,
    ) -> None:
        self._run_id = run_id
        self._status = status
        self._operator = operator
        self._publisher = publisher
        self._files = files

    def status(self) -> RunStatus:
        """Implements `RunSource.status`: adds run, operator requests, time and bottleneck to `Status.view`."""
        run = run_identity(self._files.run_dir, self._run_id, self._files.log.began)
        return whole_status(self._status.view(), run, self._operator.view(), self._files.curves.rows, {})

    def publications(self) -> tuple[PublicationTimeline, ...]:
        """Implements `RunSource.publications`: those in progress first, then those of the event log."""
        now = sorted(self._publisher.sessions, key=lambda one: -one.began)
        return (*(progress.timeline(ended=False) for progress in now), *self._files.log.publications)
