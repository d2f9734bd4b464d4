"""The versions that can be sent: the newest, and the one before it, which replicas may still be receiving."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from headrace.wire.errors import ContractError, FencedError, TransientError
from headrace.wire.v1 import common_pb2
from headrace.wire.weights import Snapshot, WeightGroup, snapshot_groups

_KEPT = 2


class Held:
    """One version: its snapshot and its canary."""

    def __init__(self, version: int, snapshot: Snapshot, canary: common_pb2.Canary) -> None:
        self.version = version
        self.snapshot = snapshot
        self.canary = canary
        self._lock = threading.Lock()
        self._readers = 0
        self._over = False

    @property
    def digest(self) -> str:
        """Digest of the weights as they travel."""
        return self.snapshot.plan.weights_digest

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """Within it the buffers are not overwritten. Raises FencedError once overwriting has begun."""
        with self._lock:
            if self._over:
                raise FencedError(f"version {self.version} is over")
            self._readers += 1
        try:
            yield self.snapshot
        finally:
            with self._lock:
                self._readers -= 1

    def take_buffers(self) -> list[Tensor]:
        """Returns the buckets for overwriting; none while a reader remains."""
        with self._lock:
            self._over = True
            return [] if self._readers else self.snapshot.buckets


class HeldVersions:
    """Holds versions; written by the main thread, read by any thread."""

    def __init__(self, *, bucket_bytes: int, algorithm: str = "") -> None:
        """`algorithm` makes the digests; by default the one of the weights' device."""
        self._bucket_bytes = bucket_bytes
        self._algorithm = algorithm
        self._held: dict[int, Held] = {}

    def put(self, version: int, groups: Iterable[WeightGroup], canary: common_pb2.Canary) -> Held:
        """Copies the weights as `version`, into the buffers of the oldest version if it has no readers."""
        spare: list[Tensor] = []
        held = dict(self._held)
        held.pop(version, None)
        while len(held) >= _KEPT:
            spare = held.pop(min(held)).take_buffers()
        # Hidden from readers before it is overwritten.
        self._held = held
        snapshot = snapshot_groups(groups, bucket_bytes=self._bucket_bytes, into=spare, algorithm=self._algorithm)
        made = Held(version, snapshot, canary)
        self._held = held | {version: made}
        return made

    @property
    def newest(self) -> Held:
        """The newest version. Raises TransientError before the first."""
        if not self._held:
            raise TransientError("the trainer holds no snapshot yet")
        return self._held[max(self._held)]

    def version(self, version: int) -> Held:
        """Returns a held version.

        Raises FencedError for one that is over, ContractError for one that is not made yet.
        """
        newest = self.newest
        found = self._held.get(version)
        if found is not None:
            return found
        if version < newest.version:
            raise FencedError(f"version {version} is over, the trainer holds {newest.version}")
        raise ContractError("unknown_version", f"version {version} is not made yet, {newest.version} is")
