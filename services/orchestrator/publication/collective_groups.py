"""The collective groups between trainer and replicas: one per replica, reused across publications.

A group is used until its first failure. A restart of either side requires a new one.
"""

import asyncio
import secrets
from collections.abc import Container
from dataclasses import dataclass

from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.state.registry import Replica
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.rpc import call
from headrace.wire.v1 import rollout_pb2, trainer_pb2

_OPEN_S = 10.0
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Link:
    group: rollout_pb2.CollectiveGroup
    incarnation: int
    boot_id: str


class GroupRefusedError(HeadraceError):
    """The trainer refuses to open a group to this replica; the message is its reason."""


class CollectiveGroups:
    """Open groups by replica id, each valid for one boot."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._links: dict[str, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(
        self, replica: Replica, *, trainer: str, incarnation: int, version: int, backend: str
    ) -> rollout_pb2.CollectiveGroup:
        """The group of this replica; asks the trainer to open a new one if none fits.

        Raises GroupRefusedError.
        """
        link = self._links.get(replica.replica_id)
        wanted = (incarnation, backend, replica.boot_id)
        if link is not None and (link.incarnation, link.group.backend, link.boot_id) == wanted:
            return link.group
        await self.drop(replica, trainer)
        # Unique across restarts of all processes. Members find each other in the store by it: it is not to be guessed.
        name = f"{replica.replica_id}-{incarnation}-{secrets.token_hex(16)}"
        opening = call(
            self._clients.trainer(trainer).OpenGroup,
            trainer_pb2.OpenGroupRequest(version=version, group_name=name, replica_id=replica.replica_id),
            timeout_s=_OPEN_S,
            what="the trainer to open a group",
        )
        try:
            store = await opening
        except (asyncio.CancelledError, HeadraceError):
            # The trainer may have opened it all the same; without a link it would stay open for ever.
            closing = asyncio.create_task(self._close(name, trainer))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            raise
        if store.refused:
            raise GroupRefusedError(store.refused)
        group = rollout_pb2.CollectiveGroup(
            name=name,
            backend=backend,
            store_host=store.store_host,
            store_port=store.store_port,
            rank=1,
            world_size=1 + max(replica.routes.ranks, 1),
        )
        self._links[replica.replica_id] = _Link(group, incarnation, replica.boot_id)
        return group

    async def drop(self, replica: Replica, trainer: str) -> None:
        """Closes the replica's group, if any: it is never used again, and processes waiting in it are released."""
        await self._drop(replica.replica_id, trainer)

    async def keep_only(self, replica_ids: Container[str], trainer: str) -> None:
        """Closes the groups of all other replicas, which are gone."""
        for replica_id in [one for one in self._links if one not in replica_ids]:
            await self._drop(replica_id, trainer)

    async def _drop(self, replica_id: str, trainer: str) -> None:
        link = self._links.pop(replica_id, None)
        if link is not None:
            await self._close(link.group.name, trainer)

    async def _close(self, name: str, trainer: str) -> None:
        request = trainer_pb2.CloseGroupRequest(group_name=name)
        try:
            stub = self._clients.trainer(trainer)
            await call(stub.CloseGroup, request, timeout_s=_CLOSE_S, what="the trainer to close a group")
        except (HeadraceError, RuntimeError):
            return  # The trainer is gone, and the group with it.
