"""Brings every live replica to the current version: new, restarted and left-out ones.

A replica with other weights never waits for the next step: the current version is published to it at once, in a
session of its own.
"""

import asyncio
import time
from collections.abc import Callable

from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import HeadraceError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.joiners")
_LOOK_S = 0.2
_FIRST_BACKOFF_S = 1.0
_LAST_BACKOFF_S = 30.0
_ORPHANED_S = 2.0
_WANTED = (pb.REPLICA_STATE_PENDING_WEIGHTS, pb.REPLICA_STATE_SERVING, pb.REPLICA_STATE_QUARANTINED)


class Joiners:
    """The loop that finds replicas without the current weights and publishes to them."""

    def __init__(
        self,
        state: RunState,
        registry: Registry,
        publisher: PublicationCoordinator,
        may_wake: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_wake`: whether a sleeping replica may be woken now."""
        self._state = state
        self._registry = registry
        self._publisher = publisher
        self._may_wake = may_wake
        self._current: PolicyVersion | None = None
        self._backoff: dict[str, tuple[float, float]] = {}
        """Boot id -> (not before, last delay)."""
        self._orphaned: dict[str, float] = {}
        """Boot id -> since when a replica has been updating although nothing is being published to it."""

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as sessions:
            while True:
                await asyncio.sleep(_LOOK_S)
                request = self._state.publication
                if request is None or request.incarnation < self._state.incarnation:
                    continue  # The trainer's next incarnation publishes first.
                current = PolicyVersion(incarnation=request.incarnation, version=request.version)
                if current != self._current:
                    # The back-off was for another version, or for a trainer that is gone.
                    self._current, self._backoff = current, {}
                await self._publisher.forget_gone()
                for replica in self._behind(current):
                    # Not considered again before its session has begun.
                    self._backoff[replica.boot_id] = (time.monotonic() + _FIRST_BACKOFF_S, self._delay(replica))
                    sessions.create_task(self._bring(request, replica))

    def _behind(self, current: PolicyVersion) -> list[Replica]:
        now = time.monotonic()
        for replica in self._registry.alive(now):
            here = replica.version == current and replica.state == pb.REPLICA_STATE_SERVING
            if here and replica.missed and not self._publisher.engaged(replica):
                # Its commit succeeded after all: it has missed nothing.
                self._registry.committed(replica, current, now)
        return [
            replica
            for replica in self._registry.alive(now)
            if self._may_be_asked(replica, now)
            and (replica.version != current or replica.state != pb.REPLICA_STATE_SERVING)
            and self._backoff.get(replica.boot_id, (0.0, 0.0))[0] <= now
        ]

    def _may_be_asked(self, replica: Replica, now: float) -> bool:
        """Whether to publish to the replica; also ends an orphaned update session, left by a crash of this process."""
        if self._publisher.engaged(replica):
            self._orphaned.pop(replica.boot_id, None)
            return False
        if replica.state != pb.REPLICA_STATE_UPDATING:
            self._orphaned.pop(replica.boot_id, None)
            return replica.state in _WANTED or (replica.state == pb.REPLICA_STATE_SLEEPING and self._may_wake())
        return now - self._orphaned.setdefault(replica.boot_id, now) > _ORPHANED_S

    def _delay(self, replica: Replica) -> float:
        return self._backoff.get(replica.boot_id, (0.0, 0.0))[1]

    async def _bring(self, request: pb.PublishRequest, replica: Replica) -> None:
        try:
            committed = await self._publisher.bring(request, replica)
        except HeadraceError as error:
            log.warning("joiner_not_served", replica=replica.replica_id, error=str(error))
            return
        if committed:
            self._backoff.pop(replica.boot_id, None)
        else:
            delay = min(max(self._delay(replica) * 2, _FIRST_BACKOFF_S), _LAST_BACKOFF_S)
            self._backoff[replica.boot_id] = (time.monotonic() + delay, delay)
        await self._state.notify()
