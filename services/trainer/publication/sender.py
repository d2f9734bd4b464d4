"""Sends held versions over collective groups, one group a replica, kept from version to version.

A group of its own for each replica: one that freezes or dies is waited for by nobody but its own thread, and with NCCL
the others need not be torn down with it. See docs/adr/0003.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch._C._distributed_c10d import TCPStore

from services.trainer.meter import timed_send
from services.trainer.publication.abandoned import Abandoned
from services.trainer.publication.held import Held
from wire.errors import ContractError, TransientError
from wire.telemetry import get_logger
from wire.weights import CollectiveGroup, Staging, open_store, side_stream

log = get_logger("trainer.sender")
_MOST_LINKS = 512


class _Link:
    """The trainer's end of one group; joined with the first version."""

    def __init__(self, store: TCPStore, replica_id: str) -> None:
        self.replica_id = replica_id
        self.store: TCPStore | None = store
        self.port = store.port
        self.group: CollectiveGroup | None = None
        self.lock = threading.Lock()
        self.closed = False
        self.stream: torch.cuda.Stream | None = None
        """Its own: a receiver that stands still holds neither training nor the other links."""

    def close(self) -> None:
        """Whoever waits in the group, or for members to come, fails soon."""
        self.closed = True
        self.store = None
        if self.group is not None:
            self.group.abort()


class Sender:
    """Links by group name."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._links: dict[str, _Link] = {}
        self.abandoned = Abandoned()
        self._threads = ThreadPoolExecutor(max_workers=_MOST_LINKS, thread_name_prefix="send-weights")

    async def open(self, name: str, replica_id: str = "") -> tuple[str, int]:
        """Opens the rendezvous of a new group to a replica; returns its host and port."""
        store, port = await asyncio.to_thread(open_store, self._host)
        while len(self._links) >= _MOST_LINKS:
            await self.close(next(iter(self._links)))
        self._links[name] = _Link(store, replica_id)
        return self._host, port

    async def send(self, held: Held, name: str, backend: str, world_size: int, deadline_s: float) -> None:
        """Broadcasts a version; raises TransientError when it is not done in time: then the group is gone."""
        link = self._links.get(name)
        if link is None:
            raise ContractError("unknown_group", f"no group {name!r} is open here")
        begin = time.monotonic()
        work = self._threads.submit(self._send, link, held, name, backend, world_size, begin + deadline_s)
        try:
            with timed_send(backend, held.snapshot.plan):
                await asyncio.wrap_future(work)
        except BaseException:
            # Also a cancelled call lands here at once: nobody goes on waiting for a member that will not come.
            await self.close(name)
            raise

    async def close(self, name: str) -> None:
        """Aborts a group; one that is not there is left alone."""
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
                if link.group is None:
                    hangs = partial(self.abandoned.add, link.replica_id, name)
                    link.group = CollectiveGroup.join(
                        name, backend, self._host, link.port, 0, world_size, _left(end), hangs
                    )
                if link.closed:
                    raise TransientError(f"the group {name} was closed")
                # Gloo sends from host memory, where they are; NCCL from a device. The copy there and the broadcast are
                # queued on the link's stream, one behind the other.
                staging = Staging(snapshot.device) if backend == "nccl" else None
                with torch.cuda.stream(link.stream):
                    for bucket in snapshot.buckets:
                        link.group.broadcast(bucket if staging is None else staging.lay_out(bucket), _left(end))
        except BaseException:
            link.close()
            raise
        finally:
            link.lock.release()


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)
