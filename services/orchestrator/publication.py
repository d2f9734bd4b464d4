"""The publication coordinator: prepare, transfer, verify, commit; each phase with a deadline, a metric and a name.

One publication runs at a time. Whoever misses a phase is left out and gets the version again, alone, from the joiners'
loop; the others go on. See docs/architecture.md.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence

from services.orchestrator import metrics
from services.orchestrator.peers import Peers
from services.orchestrator.registry import Registry, Replica
from services.orchestrator.run_state import RunState
from services.orchestrator.session import Office, Progress, Session
from services.orchestrator.settings import PublicationTable
from wire.errors import TransientError
from wire.events import EventLog
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.publication")


class Publisher:
    """Runs publications, one at a time."""

    def __init__(
        self, state: RunState, registry: Registry, peers: Peers, events: EventLog, settings: PublicationTable
    ) -> None:
        self._office = Office(state=state, registry=registry, peers=peers, events=events, times=settings)
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._life = secrets.token_hex(3)
        self._task: asyncio.Task[list[pb.ReplicaOutcome]] | None = None
        self._superseded = False
        self.progress: Progress | None = None

    async def publish(self, request: pb.PublishRequest, members: Sequence[Replica] | None = None) -> pb.PublishResponse:
        """Publishes to `members` (default: every live replica) and tells how it ended for each.

        Raises FencedError if the request's incarnation is over.
        """
        async with self._lock:
            self._office.state.fence(request.incarnation)
            if members is None:
                members = self._office.registry.members(time.monotonic())
            name = f"{request.incarnation}.{request.version}-{self._next_attempt()}"
            session = Session(self._office, request, name, self._note)
            self._task = asyncio.create_task(session.run(members))
            try:
                outcomes = await self._task
            except asyncio.CancelledError:
                if not self._superseded:
                    raise
                self._office.state.fence(request.incarnation)
                raise TransientError("the publication was broken off: a trainer has registered; ask again") from None
            finally:
                self._task.cancel()
                self._superseded = False
                self.progress = None
        for outcome in outcomes:
            label = "committed" if outcome.committed else outcome.reason.partition(":")[0]
            metrics.PUBLICATION_OUTCOMES.labels(label).inc()
        return pb.PublishResponse(outcomes=outcomes)

    @property
    def busy(self) -> bool:
        """A publication is under way."""
        return self._lock.locked()

    def supersede(self) -> None:
        """Ends the publication of a trainer that is gone; replicas leave its session by the next prepare."""
        if self._task is not None and not self._task.done():
            self._superseded = True
            self._task.cancel()

    def _note(self, progress: Progress) -> None:
        self.progress = progress

    def _next_attempt(self) -> str:
        """Unique over all lives of this process."""
        self._attempts += 1
        return f"{self._life}.{self._attempts}"
