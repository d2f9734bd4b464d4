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


class Joiners:
    """The loop that looks for replicas without the current weights."""

    def __init__(self, state: RunState, registry: Registry, publisher: Publisher) -> None:
        self._state = state
        self._registry = registry
        self._publisher = publisher
        self._backoff: dict[str, tuple[float, float]] = {}

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
        wanted = (pb.REPLICA_STATE_PENDING_WEIGHTS, pb.REPLICA_STATE_SERVING, pb.REPLICA_STATE_QUARANTINED)
        return [
            replica
            for replica in self._registry.alive(now)
            if replica.state in wanted
            and (replica.version != current or replica.state != pb.REPLICA_STATE_SERVING)
            and self._backoff.get(replica.boot_id, (0.0, 0.0))[0] <= now
        ]

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
