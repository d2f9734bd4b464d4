"""A stand-alone collective group (gloo or NCCL): rank 0, the trainer, broadcasts; the others receive.

No default process group is needed or touched, so a trainer's own groups and the engines stay apart. A group is used
until its first failure and then aborted, never destroyed: destroying is itself a collective that waits for the peer
that just died. The rendezvous keys are those of torch's helper for groups outside the world, which SGLang joins with.
All calls block and belong in a worker thread.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

from headrace.wire.errors import ContractError, TransientError
from headrace.wire.host.interfaces import address_towards
from headrace.wire.process.lifecycle import in_time
from headrace.wire.weights.store import GroupStore

SOURCE_RANK = 0
_JOIN_S = 20.0
"""Longest wait for the other members: they were all asked at once."""
_PROBE_S = 5.0
_GRACE_S = 0.5
_BLOCKING_WAIT = "TORCH_NCCL_BLOCKING_WAIT"
_CONSTRUCTING = threading.Lock()
T = TypeVar("T")
LeftBehind: TypeAlias = "Callable[[Future[Any]], object]"
"""Takes a thread that has missed its deadline and cannot be ended."""


class _Backend(Protocol):
    """What gloo's and NCCL's process groups share and this module uses."""

    def broadcast(self, tensors: list[Tensor], options: dist.BroadcastOptions) -> dist.Work: ...

    def abort(self) -> None: ...


def open_store(host: str) -> tuple[GroupStore, int]:
    """Opens the rendezvous store of one group on a free port of `host` alone, and returns it with the port.

    Raises TransientError if `host` is not an address of this machine.
    """
    try:
        store = GroupStore(host, timeout_s=60)
    except OSError as error:
        raise TransientError(f"no store can listen on {host}: {error.strerror or error}") from error
    return store, store.port


class CollectiveGroup:
    """One member's end of the group."""

    def __init__(
        self,
        backend: _Backend,
        store: Store,
        name: str,
        *,
        connects: bool = False,
        left_behind: LeftBehind = lambda _: None,
    ) -> None:
        """`connects`: members connect in the first broadcast only. `left_behind`: see `join`."""
        self._backend: _Backend | None = backend
        self._left_behind = left_behind
        self._store = store
        self.name = name
        self._connects = connects

    @classmethod
    def join(
        cls,
        name: str,
        backend: str,
        store_host: str,
        store_port: int,
        rank: int,
        world_size: int,
        timeout_s: float,
        left_behind: LeftBehind = lambda _: None,
    ) -> Self:
        """Waits until all `world_size` members are there; raises TransientError when they are not in time.

        `left_behind` is given each thread, of this call or of the first broadcast, that hangs after its deadline.
        """
        timeout_s = min(timeout_s, _JOIN_S)
        limit = timedelta(seconds=timeout_s)

        def join() -> "CollectiveGroup":
            # Asked first: torch's store takes twice the deadline to find that nothing listens.
            socket.create_connection((store_host, store_port), min(timeout_s, _PROBE_S)).close()
            tcp = TCPStore(store_host, store_port, is_master=False, timeout=limit, wait_for_workers=False)
            store = _keys_of(name, backend, tcp)
            opened = _open(backend, store, rank, world_size, store_host, limit)
            return cls(opened, store, name, connects=backend == "nccl", left_behind=left_behind)

        try:
            return cast(Self, in_time(join, timeout_s + _GRACE_S, "join-group", left_behind))
        except (RuntimeError, OSError) as error:
            raise TransientError(
                f"rank {rank} could not join the group {name} in {timeout_s:.1f} s: {error}"
            ) from error

    def broadcast(self, tensor: Tensor, timeout_s: float) -> None:
        """Fills `tensor` with rank 0's; raises TransientError when a member is lost or the time is over.

        After a failure the group is aborted.
        """
        backend = self._backend
        if backend is None:
            raise TransientError(f"the group {self.name} was aborted")
        try:
            if self._connects:
                self._connect(backend, tensor, timeout_s)
            else:
                _broadcast(backend, tensor, timeout_s)
        except (RuntimeError, TimeoutError) as error:
            self.abort()
            reason = str(error) or f"a member did not connect in {timeout_s:.1f} s"
            raise TransientError(f"the broadcast in the group {self.name} failed: {reason}") from error

    def _connect(self, backend: _Backend, tensor: Tensor, timeout_s: float) -> None:
        """The first broadcast: NCCL's members connect in it, without a deadline of its own, and one may be dead by now.

        In a thread that is abandoned when the time is over: `ncclCommInitRank` cannot be broken off.
        """
        stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None

        def connect() -> None:
            with torch.cuda.stream(stream):
                _broadcast(backend, tensor, timeout_s)

        in_time(connect, timeout_s + _GRACE_S, "connect-group", self._left_behind)
        self._connects = False

    @property
    def aborted(self) -> bool:
        """Whether the group has been aborted and cannot be used any more."""
        return self._backend is None

    def abort(self) -> None:
        """Ends the group at once, without waiting for peers; idempotent.

        Dropping the reference closes gloo's connections, so the other members fail at once and not at
        their deadline.
        """
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()


def _broadcast(backend: _Backend, tensor: Tensor, timeout_s: float) -> None:
    """Returns when the bytes are there; NCCL's kernel waits for this thread's current stream, and for no other.

    ProcessGroupNCCL's `wait` with a deadline polls the end of the kernel, so nothing is left to be synchronized.
    """
    limit = timedelta(seconds=timeout_s)
    options = dist.BroadcastOptions()
    options.rootRank = SOURCE_RANK
    options.rootTensor = 0
    options.timeout = limit
    backend.broadcast([tensor], options).wait(limit)


def without_watchdog(construct: Callable[[], T]) -> T:
    """Makes an NCCL group whose failure is an error of the call that waits, and not the end of the process.

    Otherwise torch's watchdog aborts the process a minute after a failed or late broadcast. ProcessGroupNCCL's
    constructor reads TORCH_NCCL_BLOCKING_WAIT, and starts no watchdog if it is set ("NO watchdog thread is created",
    ProcessGroupNCCL.cpp); the trainer's own groups must keep theirs, so it is set while the constructor runs, and no
    longer. The lock, which `with_watchdog` takes too, is held for that alone: members are waited for elsewhere.
    """
    with _CONSTRUCTING:
        before = os.environ.get(_BLOCKING_WAIT)
        os.environ[_BLOCKING_WAIT] = "1"
        try:
            return construct()
        finally:
            if before is None:
                del os.environ[_BLOCKING_WAIT]
            else:
                os.environ[_BLOCKING_WAIT] = before


@contextmanager
def with_watchdog() -> Iterator[None]:
    """Wraps code that makes process groups by torch's own means (`init_process_group`, `init_device_mesh`, DeepSpeed).

    No `without_watchdog` constructs meanwhile: they see TORCH_NCCL_BLOCKING_WAIT as the process was started with it,
    and keep their watchdog. Not reentrant. Members are waited for inside it: a publication's group that is made at the
    same time fails at its deadline.
    """
    with _CONSTRUCTING:
        yield


def _keys_of(name: str, backend: str, store: Store) -> Store:
    device = "cuda" if backend == "nccl" else "cpu"
    return PrefixStore(f"{device}/", PrefixStore(f"{name}/", PrefixStore(name, store)))


def _open(backend: str, store: Store, rank: int, world_size: int, store_host: str, limit: timedelta) -> _Backend:
    if backend == "gloo":
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stub
        options._timeout = limit
        options._threads = 1
        # Gloo would else guess one from the host's name.
        options._devices = [ProcessGroupGloo.create_device(hostname=address_towards(store_host))]
        return cast(_Backend, ProcessGroupGloo(store, rank, world_size, options))
    if backend == "nccl":
        if not dist.is_nccl_available():
            raise ContractError("bad_backend", "this torch has no NCCL; use the gloo backend")
        nccl = dist.ProcessGroupNCCL.Options()
        nccl._timeout = limit
        return cast(_Backend, without_watchdog(lambda: dist.ProcessGroupNCCL(store, rank, world_size, nccl)))
    raise ContractError("bad_backend", f"{backend!r} is neither gloo nor nccl")
