"""Brings every live replica to the current version: newcomers, those left out, and the restarted ones.

A replica that holds other weights never waits for a step: what is current is published to it at once.
"""

import asyncio
import time

from services.orchestrator.publication import Publisher
from services.orchestrator.registry import Registry, Replica
from services.orchestrator.run_state import RunState
from wire.contracts import PolicyVersion
from wire.errors import HeadraceError
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.joiners")
_LOOK_S = 0.2
_FIRST_BACKOFF_S = 1.0
_LAST_BACKOFF_S = 30.0
_ORPHANED_S = 2.0
_WANTED = (pb.REPLICA_STATE_PENDING_WEIGHTS, pb.REPLICA_STATE_SERVING, pb.REPLICA_STATE_QUARANTINED)


class Joiners:
    """The loop that looks for replicas without the current weights."""

    def __init__(self, state: RunState, registry: Registry, publisher: Publisher) -> None:
        self._state = state
        self._registry = registry
        self._publisher = publisher
        self._backoff: dict[str, tuple[float, float]] = {}
        self._orphaned: dict[str, float] = {}
        """Boot id -> since when a replica has been updating although nothing is being published."""

    async def run(self) -> None:
        """Never ends by itself."""
        while True:
            await asyncio.sleep(_LOOK_S)
            request = self._state.publication
            if request is None or request.incarnation < self._state.incarnation:
                continue  # The trainer's next life publishes first.
            behind = self._behind(PolicyVersion(incarnation=request.incarnation, version=request.version))
            if behind:
                await self._bring(request, behind)

    def _behind(self, current: PolicyVersion) -> list[Replica]:
        now = time.monotonic()
        return [
            replica
            for replica in self._registry.alive(now)
            if self._may_be_asked(replica, now)
            and (replica.version != current or replica.state != pb.REPLICA_STATE_SERVING)
            and self._backoff.get(replica.boot_id, (0.0, 0.0))[0] <= now
        ]

    def _may_be_asked(self, replica: Replica, now: float) -> bool:
        """An update session that outlived its publication (this process died in it) is ended by the next prepare."""
        if replica.state != pb.REPLICA_STATE_UPDATING or self._publisher.busy:
            self._orphaned.pop(replica.boot_id, None)
            return replica.state in _WANTED
        return now - self._orphaned.setdefault(replica.boot_id, now) > _ORPHANED_S

    async def _bring(self, request: pb.PublishRequest, replicas: list[Replica]) -> None:
        if self._publisher.busy:
            return
        try:
            response = await self._publisher.publish(request, replicas)
        except HeadraceError as error:
            log.warning("joiners_not_served", error=str(error))
            return
        for replica, outcome in zip(replicas, response.outcomes, strict=True):
            if outcome.committed:
                self._backoff.pop(replica.boot_id, None)
                continue
            _, delay = self._backoff.get(replica.boot_id, (0.0, _FIRST_BACKOFF_S / 2))
            delay = min(delay * 2, _LAST_BACKOFF_S)
            self._backoff[replica.boot_id] = (time.monotonic() + delay, delay)
        await self._state.notify()
