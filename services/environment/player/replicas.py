"""Which replicas take turns of episodes, as the orchestrator says; the last list stands while it is away."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import grpc

from headrace.wire.access.roles import Role
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.codec import VERSION
from headrace.wire.peers.outage import Outage
from headrace.wire.peers.rpc import channel, metadata
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub

log = get_logger("environment.replicas")
_RETRY_S = 0.5


@dataclass(slots=True)
class ReplicaChoice:
    """One replica, and what this worker has seen of it since the last list."""

    replica_id: str
    address: str
    version: PolicyVersion
    free_rows: int
    takes: bool
    avoid_until: float = 0.0
    """Monotonic seconds: it was full or did not answer."""
    in_flight: int = 0
    """Turns that this worker has there."""
    taken: int = 0
    """Turns begun there since the last list: its free rows are fewer by them."""
    outage: Outage = field(init=False)
    """Failures of calls to it: the orchestrator may reach a replica that this worker does not."""

    def __post_init__(self) -> None:
        self.outage = Outage(self.replica_id, self.address)

    def can_take(self, min_version: int, now: float) -> bool:
        """Whether it serves weights that are new enough, and is worth being asked."""
        return self.takes and self.version.version >= min_version and now >= self.avoid_until

    @property
    def room(self) -> int:
        """Free rows, less those that this worker has taken meanwhile."""
        return self.free_rows - self.taken


@dataclass(slots=True)
class ReplicaDirectory:
    """All replicas. On one event loop only."""

    _places: dict[str, ReplicaChoice] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, places: Collection[pb.ReplicaPlace]) -> None:
        """Takes over a list. What was seen of a replica stays, unless it has moved to another address."""
        known, self._places = self._places, {}
        for place in places:
            version = VERSION.from_pb(place.version)
            found = known.get(place.replica_id)
            if found is not None and found.address == place.address:
                # The same object: turns in flight count themselves out of it.
                found.version, found.free_rows, found.takes, found.taken = version, place.free_rows, place.takes, 0
            else:
                found = ReplicaChoice(place.replica_id, place.address, version, place.free_rows, place.takes)
            self._places[place.replica_id] = found
        for gone in known.keys() - self._places.keys():
            known[gone].outage.over()
        self._changed.set()

    def choose(self, min_version: int, *, preferred: str = "") -> ReplicaChoice | None:
        """The replica for a turn: the `preferred` one while it has room, else the one with the most; None: none now."""
        now = time.monotonic()
        able = [one for one in self._places.values() if one.can_take(min_version, now)]
        before = next((one for one in able if one.replica_id == preferred and one.room > 0), None)
        return before or max(able, key=lambda one: (one.room, -one.in_flight, one.replica_id), default=None)

    def serves(self, min_version: int) -> bool:
        """Whether any replica serves weights of at least this version."""
        return any(one.takes and one.version.version >= min_version for one in self._places.values())

    async def wait_to_serve(self, min_version: int, seconds: float) -> None:
        """Returns when a replica serves weights of at least this version. Raises WaitTimeoutError."""

        async def watch() -> None:
            while not self.serves(min_version):
                await self.next_change()

        await wait_for(watch(), seconds, f"a replica that serves version {min_version}")

    async def until_gone(self, place: ReplicaChoice) -> None:
        """Returns when the replica is listed no more, or at another address; the caller has the deadline."""
        while (now := self._places.get(place.replica_id)) is not None and now.address == place.address:
            await self.next_change()

    async def next_change(self) -> None:
        """Returns at the next list; the caller has the deadline."""
        self._changed.clear()
        await self._changed.wait()


async def follow_replicas(orchestrator: str, run_id: str, directory: ReplicaDirectory) -> None:
    """Keeps the directory up to date. Runs until cancelled; an orchestrator that is away is asked again and again."""
    outage = Outage("orchestrator", orchestrator)
    async with channel(orchestrator, Role.ORCHESTRATOR) as opened:
        stub = OrchestratorServiceStub(opened)
        while True:
            watch = stub.WatchReplicas(pb.WatchReplicasRequest(run_id=run_id), metadata=metadata())
            began = time.monotonic()
            try:
                lease_s = _FIRST_S
                while True:
                    places = await wait_for(watch.read(), lease_s, "the orchestrator to list the replicas")
                    if not isinstance(places, pb.ReplicaList):
                        break  # The stream has ended.
                    directory.update(places.replicas)
                    lease_s, began = places.lease_s, time.monotonic()
                    outage.over()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                outage.failed(error.details() if isinstance(error, grpc.aio.AioRpcError) else error, began=began)
            finally:
                watch.cancel()
            await asyncio.sleep(_RETRY_S)


_FIRST_S = 4.0
"""For the first list; the others come before the lease that each of them names is over."""
