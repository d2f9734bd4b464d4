"""The collective groups between trainer and replicas: one a replica, kept from publication to publication.

A group is used until its first failure. A new life of either side begins a new one.
"""

import secrets
from dataclasses import dataclass

from services.orchestrator.peers import Peers
from services.orchestrator.registry import Replica
from wire.errors import HeadraceError
from wire.rpc import call
from wire.v1 import rollout_pb2, trainer_pb2

_OPEN_S = 10.0
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Link:
    group: rollout_pb2.CollectiveGroup
    incarnation: int


class Links:
    """Open groups by the replica's boot."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._links: dict[str, _Link] = {}

    async def take(
        self, replica: Replica, *, trainer: str, incarnation: int, version: int, backend: str
    ) -> rollout_pb2.CollectiveGroup:
        """The group of this replica; a new one is opened at the trainer if there is none that fits."""
        link = self._links.get(replica.boot_id)
        if link is not None and link.incarnation == incarnation and link.group.backend == backend:
            return link.group
        # Unique over all lives of everybody.
        name = f"{replica.replica_id}-{incarnation}-{secrets.token_hex(4)}"
        store = await call(
            self._peers.trainer(trainer).OpenGroup,
            trainer_pb2.OpenGroupRequest(version=version, group_name=name),
            timeout_s=_OPEN_S,
            what="the trainer to open a group",
        )
        group = rollout_pb2.CollectiveGroup(
            name=name,
            backend=backend,
            store_host=store.store_host,
            store_port=store.store_port,
            rank=1,
            world_size=1 + max(replica.routes.ranks, 1),
        )
        self._links[replica.boot_id] = _Link(group, incarnation)
        return group

    async def drop(self, replica: Replica, trainer: str) -> None:
        """The group has failed: it is never used again, and whoever waits in it is let go."""
        link = self._links.pop(replica.boot_id, None)
        if link is None:
            return
        request = trainer_pb2.CloseGroupRequest(group_name=link.group.name)
        try:
            stub = self._peers.trainer(trainer)
            await call(stub.CloseGroup, request, timeout_s=_CLOSE_S, what="the trainer to close a group")
        except (HeadraceError, RuntimeError):
            return  # It is gone, and the group with it.
