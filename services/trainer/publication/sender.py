"""Sends held versions over collective groups, one group a replica, kept from version to version.

With a group for each replica, only its own thread waits for a replica that freezes or dies, and with NCCL the other
groups need not be torn down with it. See docs/adr/0003.
"""

import asyncio
import threading
import time
from functools import partial

import torch

from headrace.services.trainer.publication.abandoned import Abandoned
from headrace.services.trainer.publication.held import Held
from headrace.services.trainer.publication.transfer_metrics import timed_send
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.process.lifecycle import aside
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights import CollectiveGroup, GroupStore, Staging, open_store, side_stream

log = get_logger("trainer.sender")
_MOST_LINKS = 512


class _Link:
    """The trainer's end of one group; joined with the first version."""

    def __init__(self, store: GroupStore, replica_id: str) -> None:
        self.replica_id = replica_id
        self.store = store
        self.port = store.port
        self.group: CollectiveGroup | None = None
        self.lock = threading.Lock()
        self.closed = False
        self.stream: torch.cuda.Stream | None = None
        """A stream of its own: a receiver that stalls blocks neither training nor the other links."""

    def close(self) -> None:
        """Closes the group, so that threads waiting in it or for its members fail soon."""
        self.closed = True
        self.store.close()
        if self.group is not None:
            self.group.abort()


class Sender:
    """Collective groups by name."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._links: dict[str, _Link] = {}
        self.abandoned = Abandoned()
        self._reported_open = False

    async def open(self, name: str, replica_id: str = "") -> tuple[str, int]:
        """Opens the rendezvous of a new group to a replica; returns its host and port."""
        store, port = await asyncio.to_thread(open_store, self._host)
        while len(self._links) >= _MOST_LINKS:
            await self.close(next(iter(self._links)))
        self._links[name] = _Link(store, replica_id)
        return self._host, port

    async def send(self, held: Held, name: str, backend: str, world_size: int, deadline_s: float) -> None:
        """Broadcasts a version; raises TransientError if it is not done in time, and the group is closed then."""
        link = self._links.get(name)
        if link is None:
            raise ContractError("unknown_group", f"no group {name!r} is open here")
        begin = time.monotonic()
        work = partial(self._send, link, held, name, backend, world_size, begin + deadline_s)
        try:
            with timed_send(backend, held.snapshot.plan):
                await aside(work, "send-weights")
        except BaseException:
            # A cancelled call comes here at once, too: no thread goes on waiting for a member that will not come.
            await self.close(name)
            raise

    def _report_open(self, reason: str) -> None:
        """Says once that strangers can reach the stores of groups for as long as these are open."""
        if reason and not self._reported_open:
            self._reported_open = True
            log.warning("store_not_sealed", reason=reason)

    async def close(self, name: str) -> None:
        """Aborts a group; does nothing if there is none of that name."""
        link = self._links.pop(name, None)
        if link is not None:
            await asyncio.to_thread(link.close)

    def _send(self, link: _Link, held: Held, name: str, backend: str, world_size: int, end: float) -> None:
        """Runs in a thread of its own."""
        if not link.lock.acquire(timeout=_left(end)):
            raise TransientError(f"the group {name} still sends another version")
        try:
            with held.read() as snapshot:
                link.stream = link.stream or side_stream(snapshot.device)
                is_first = link.group is None
                if link.group is None:
                    hangs = partial(self.abandoned.add, link.replica_id, name)
                    link.group = CollectiveGroup.join(
                        name, backend, self._host, link.port, 0, world_size, _left(end), hangs
                    )
                if link.closed:
                    raise TransientError(f"the group {name} was closed")
                # Gloo sends from host memory, where the buckets are; NCCL from a device. The copy there and the
                # broadcast are queued on the link's stream, one after the other.
                staging = Staging(snapshot.device) if backend == "nccl" else None
                with torch.cuda.stream(link.stream):
                    for bucket in snapshot.buckets:
                        link.group.broadcast(bucket if staging is None else staging.lay_out(bucket), _left(end))
                if is_first:
                    # Every member has connected by now: NCCL's do so in the first broadcast.
                    self._report_open(link.store.seal())
        except BaseException:
            link.close()
            raise
        finally:
            link.lock.release()


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)
