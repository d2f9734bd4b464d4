"""The protocol of streams: at-least-once delivery, idempotent effects, one group per entry.

Two modules implement this protocol: `redis` (a real server) and `memory` (unit tests). The terms:
*settle* = put entries on other streams and ack this one, in one transaction: the effect of a consumer;
*release* = hand an entry back, so that another consumer takes it at once;
*renew* = keep the claim on work that takes longer than the lease.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class StreamName(StrEnum):
    """The run's streams."""

    EPISODES = "episodes"
    PROMPTS = "prompts"
    ROLLOUTS = "rollouts"
    SCORED = "scored"
    EVALUATED = "evaluated"
    DEAD = "dead"


TRAINING_FLOW = (StreamName.EPISODES, StreamName.PROMPTS, StreamName.ROLLOUTS, StreamName.SCORED)
"""The order in which a training group moves through the streams: a scan in this order cannot miss one that moves.

A group begins in `episodes` if it has an environment, else in `prompts`.
"""

EVALUATION_FLOW = (StreamName.EPISODES, StreamName.PROMPTS, StreamName.ROLLOUTS, StreamName.EVALUATED)
"""The same of a group of an evaluation."""

CONSUMER_GROUP = {
    StreamName.EPISODES: "environment",
    StreamName.PROMPTS: "rollout",
    StreamName.ROLLOUTS: "reward",
    StreamName.SCORED: "trainer",
    StreamName.EVALUATED: "orchestrator",
}
"""The one consumer group of each work stream; `dead` is read by people only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One delivery of one stream entry."""

    id: str
    data: bytes
    """A serialized wire.v1.StreamMessage."""
    deliveries: int = 1
    """How often this entry was delivered, this time included."""
    note: str = ""
    """A note for people; for a dead entry the reason, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """An entry to be added to a stream."""

    stream: StreamName
    data: bytes
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """A look at one stream: lengths are entries, the age is seconds."""

    length: int
    pending: int
    undelivered: int
    oldest_pending_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMemory:
    """Memory that the server's data takes, and its limit; bytes."""

    used_bytes: int
    limit_bytes: int
    """Its `maxmemory`; without one the memory of its machine (a container may have less); 0 = not reported."""


class Consumer(Protocol):
    """One named consumer of one stream's group."""

    async def read(self, *, count: int, block_s: float) -> list[Entry]:
        """Up to `count` entries: orphans whose lease is over first, then new ones; waits at most `block_s`."""
        ...

    async def reclaim_own(self) -> list[Entry]:
        """All entries that an earlier life of this consumer took and never acked."""
        ...

    async def settle(self, entry: Entry, puts: Sequence[Put]) -> None:
        """Adds `puts` and acks `entry` in one transaction. Safe against lost replies: done once or raises."""
        ...

    async def ack(self, entries: Sequence[Entry]) -> None:
        """Acks entries whose effect is durable elsewhere."""
        ...

    async def release(self, entries: Sequence[Entry]) -> None:
        """Hands entries back: the next `read` of any consumer takes them; not counted as a delivery."""
        ...

    async def fail(self, entry: Entry) -> int:
        """Hands an entry back after a failure that was noticed; returns how many such failures it has had."""
        ...

    async def renew(self, entries: Sequence[Entry]) -> None:
        """Starts the lease of each entry anew."""
        ...


class Broker(Protocol):
    """One run's streams."""

    def consumer(self, stream: StreamName, name: str, *, lease_s: float) -> Consumer:
        """A consumer of the stream's group; an entry is an orphan when its lease has not been renewed in time."""
        ...

    async def add(self, stream: StreamName, data: bytes, *, sequence: int | None = None) -> None:
        """Adds an entry. With `sequence` (rising, one producer a stream) a repeated add changes nothing."""
        ...

    async def live(self, stream: StreamName) -> list[bytes]:
        """Data of all entries that are pending or not yet delivered."""
        ...

    async def newest(self, stream: StreamName, *, before: str, count: int) -> list[Entry]:
        """Up to `count` entries older than the id `before` (empty: the newest), newest first; nothing is taken."""
        ...

    async def last_sequence(self, stream: StreamName) -> int:
        """Highest sequence number ever added to the stream; 0 for none."""
        ...

    async def check(self, timeout_s: float) -> None:
        """Raises TransientError if the server does not answer within `timeout_s`."""
        ...

    async def trim(self, stream: StreamName) -> int:
        """Removes what its group has acked; never what is pending or undelivered. Returns how many."""
        ...

    async def stats(self, stream: StreamName) -> StreamStats:
        """Depths for metrics and status."""
        ...

    async def memory(self) -> BrokerMemory:
        """Memory of the whole server, all runs and databases together."""
        ...

    async def certificate_expires(self) -> float:
        """When the certificate that the server shows to new connections expires, as Unix time; 0 without TLS.

        Raises TransientError if it takes no new connection.
        """
        ...

    async def generation(self) -> str:
        """Changes when the server was restarted or lost its data: a reason to look for lost groups."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...
