"""The publication coordinator: prepare, transfer, verify, commit; each phase with a deadline, a metric and a name.

The trainer's own publication addresses every replica that can take the weights over a collective group. Whoever needs
the disk (newcomers after a miss, stragglers, quarantined ones) is brought along beside it by the joiners' loop, one
session each, so that a slow one holds nobody. See docs/architecture.md.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence

from services.orchestrator import metrics
from services.orchestrator.links import Links
from services.orchestrator.peers import Peers
from services.orchestrator.progress import Progress
from services.orchestrator.registry import Registry, Replica
from services.orchestrator.routes import DISK, Route
from services.orchestrator.run_state import RunState
from services.orchestrator.session import Office, Session
from services.orchestrator.settings import PublicationTable
from wire.errors import TransientError
from wire.events import EventLog
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.publication")


class Publisher:
    """Runs publications: the trainer's one at a time, those to single replicas beside it."""

    def __init__(
        self, state: RunState, registry: Registry, peers: Peers, events: EventLog, settings: PublicationTable
    ) -> None:
        self._office = Office(
            state=state,
            registry=registry,
            peers=peers,
            links=Links(peers),
            events=events,
            times=settings,
            proved={},
            aborts=set(),
        )
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._life = secrets.token_hex(3)
        self._running: dict[asyncio.Task[list[pb.ReplicaOutcome]], Session] = {}
        self._superseded: set[asyncio.Task[list[pb.ReplicaOutcome]]] = set()
        self._engaged: set[str] = set()
        self.progress: Progress | None = None
        """Of the trainer's publication."""

    async def publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        """Publishes to every live replica with a collective route and tells how it ended for each.

        Raises FencedError if the request's incarnation is over.
        """
        async with self._lock:
            self._office.state.fence(request.incarnation)
            members = self._members(request)
            try:
                return await self._run(request, members, main=True)
            finally:
                self.progress = None

    async def bring(self, request: pb.PublishRequest, replica: Replica) -> bool:
        """Publishes to one replica, beside whatever else is being published; returns whether it committed."""
        if self.engaged(replica):
            return False
        response = await self._run(request, [replica], main=False)
        return response.outcomes[0].committed

    def _members(self, request: pb.PublishRequest) -> list[Replica]:
        """Whom the trainer's publication addresses. Who must compile first waits for nobody, and nobody for it."""
        members = [
            replica
            for replica in self._office.registry.members(time.monotonic())
            if replica.boot_id not in self._engaged and self._in_time(request, replica)
        ]
        return [replica for replica in members if not replica.first_verify_s] or members

    def _in_time(self, request: pb.PublishRequest, replica: Replica) -> bool:
        """The disk is slower than a collective: who needs it is brought along by itself."""
        return bool(request.disk_path) or self._office.route(replica).backend != DISK

    def route(self, replica: Replica) -> Route:
        """By which way the next weights come to it, as far as is known now."""
        return self._office.route(replica)

    async def _run(self, request: pb.PublishRequest, members: Sequence[Replica], *, main: bool) -> pb.PublishResponse:
        session = Session(self._office, request, f"{request.incarnation}.{request.version}-{self._next_attempt()}")
        boots = {replica.boot_id for replica in members}
        self._engaged |= boots
        if main:
            self.progress = session.progress
        task = asyncio.create_task(session.run(members))
        self._running[task] = session
        try:
            outcomes = await task
        except asyncio.CancelledError:
            if task not in self._superseded:
                raise
            self._office.state.fence(request.incarnation)
            raise TransientError("the publication was broken off: a trainer has registered; ask again") from None
        finally:
            task.cancel()
            self._superseded.discard(task)
            del self._running[task]
            self._engaged -= boots
        _count(outcomes)
        return pb.PublishResponse(outcomes=outcomes)

    async def forget_gone(self) -> None:
        """Closes the groups of replicas that live no more."""
        living = {replica.replica_id for replica in self._office.registry.alive(time.monotonic())}
        await self._office.links.keep_only(living, self._office.state.trainer.address)

    def engaged(self, replica: Replica) -> bool:
        """It is in a publication now."""
        return replica.boot_id in self._engaged

    @property
    def sessions(self) -> list[Progress]:
        """All publications under way."""
        return [session.progress for session in self._running.values()]

    def supersede(self) -> None:
        """Ends the publications of a trainer that is gone; replicas leave their sessions by the next prepare."""
        for task in self._running:
            self._superseded.add(task)
            task.cancel()

    def _next_attempt(self) -> str:
        """Unique over all lives of this process."""
        self._attempts += 1
        return f"{self._life}.{self._attempts}"


def _count(outcomes: Iterable[pb.ReplicaOutcome]) -> None:
    for outcome in outcomes:
        label = "committed" if outcome.committed else outcome.reason.partition(":")[0]
        metrics.PUBLICATION_OUTCOMES.labels(label).inc()
