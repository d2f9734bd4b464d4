"""The publication coordinator: prepare, transfer, verify, commit; each phase with a deadline, a metric and a name.

The trainer's own publication addresses every replica that can receive the weights over a collective group. Replicas
that need the disk (after a miss, stragglers, quarantined ones) are updated concurrently by the joiners' loop, one
session each, so that a slow replica delays no other. See docs/concepts.md.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.collective_groups import CollectiveGroups
from headrace.services.orchestrator.publication.progress import PublicationProgress
from headrace.services.orchestrator.publication.routes import DISK, Route
from headrace.services.orchestrator.publication.session import PublicationContext, PublicationSession
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.wire.errors import TransientError
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.publication")


class PublicationCoordinator:
    """Runs publications: the trainer's one at a time, those to single replicas concurrently with it."""

    def __init__(
        self, state: RunState, registry: Registry, clients: Clients, events: EventLog, settings: PublicationTable
    ) -> None:
        self._context = PublicationContext(
            state=state,
            registry=registry,
            clients=clients,
            groups=CollectiveGroups(clients),
            events=events,
            times=settings,
            proved={},
            aborts=set(),
        )
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._life = secrets.token_hex(3)
        self._running: dict[asyncio.Task[list[pb.ReplicaOutcome]], PublicationSession] = {}
        self._superseded: set[asyncio.Task[list[pb.ReplicaOutcome]]] = set()
        self._engaged: set[str] = set()
        self.progress: PublicationProgress | None = None
        """Progress of the trainer's publication; None when there is none."""

    async def publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        """Publishes to every live replica with a collective route; returns the outcome of each.

        Raises FencedError if the request's incarnation is over.
        """
        async with self._lock:
            self._context.state.fence(request.incarnation)
            members = self._members(request)
            try:
                return await self._run(request, members, main=True)
            finally:
                self.progress = None

    async def bring(self, request: pb.PublishRequest, replica: Replica) -> bool:
        """Publishes to one replica, concurrently with other publications; returns whether it committed."""
        if self.engaged(replica):
            return False
        response = await self._run(request, [replica], main=False)
        return response.outcomes[0].committed

    def _members(self, request: pb.PublishRequest) -> list[Replica]:
        """Replicas of the trainer's publication. Those that must compile first are left to joiners, unless all must."""
        members = [
            replica
            for replica in self._context.registry.members(time.monotonic())
            if replica.boot_id not in self._engaged and self._in_time(request, replica)
        ]
        return [replica for replica in members if not replica.first_verify_s] or members

    def _in_time(self, request: pb.PublishRequest, replica: Replica) -> bool:
        """Whether the replica can keep up: the disk is slower than a collective, so it gets a session of its own."""
        return bool(request.disk_path) or self._context.route(replica).backend != DISK

    def route(self, replica: Replica) -> Route:
        """The route by which the replica will receive the next weights, as far as is known now."""
        return self._context.route(replica)

    async def _run(self, request: pb.PublishRequest, members: Sequence[Replica], *, main: bool) -> pb.PublishResponse:
        session = PublicationSession(
            self._context, request, f"{request.incarnation}.{request.version}-{self._next_attempt()}"
        )
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
            self._context.state.fence(request.incarnation)
            raise TransientError("the publication was aborted: a trainer has registered; ask again") from None
        finally:
            task.cancel()
            self._superseded.discard(task)
            del self._running[task]
            self._engaged -= boots
        _count(outcomes)
        return pb.PublishResponse(outcomes=outcomes)

    async def forget_gone(self) -> None:
        """Closes the collective groups of replicas that are no longer alive."""
        living = {replica.replica_id for replica in self._context.registry.alive(time.monotonic())}
        await self._context.groups.keep_only(living, self._context.state.trainer.address)

    def engaged(self, replica: Replica) -> bool:
        """Whether the replica is in a publication now."""
        return replica.boot_id in self._engaged

    @property
    def sessions(self) -> list[PublicationProgress]:
        """Progress of all publications in progress."""
        return [session.progress for session in self._running.values()]

    def supersede(self) -> None:
        """Cancels all publications of a trainer that is gone; replicas leave their sessions at the next prepare."""
        for task in self._running:
            self._superseded.add(task)
            task.cancel()

    def _next_attempt(self) -> str:
        """An attempt id that is unique across restarts of this process."""
        self._attempts += 1
        return f"{self._life}.{self._attempts}"


def _count(outcomes: Iterable[pb.ReplicaOutcome]) -> None:
    for outcome in outcomes:
        label = "committed" if outcome.committed else outcome.reason.partition(":")[0]
        metrics.PUBLICATION_OUTCOMES.labels(label).inc()
