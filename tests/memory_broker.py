"""The stream protocol in one process's memory, for unit tests: same promises, no durability."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.wire.streams.protocol import BrokerMemory, Entry, Put, StreamName, StreamStats


@dataclass(slots=True)
class _Pending:
    owner: str
    since: float
    deliveries: int


@dataclass(slots=True)
class _Stream:
    entries: dict[int, bytes] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    added: int = 0
    delivered: int = 0
    last_sequence: int = 0
    pending: dict[int, _Pending] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)


class MemoryBroker:
    """Implements `Broker` with dictionaries. All consumers must live on one event loop."""

    def __init__(self) -> None:
        self.streams = {name: _Stream() for name in StreamName}
        self.changed = asyncio.Event()
        self.life = 0

    def consumer(self, stream: StreamName, name: str, *, lease_s: float) -> "MemoryConsumer":
        """A consumer of the stream's group on this broker."""
        return MemoryConsumer(self, stream, name, lease_s)

    async def check(self, timeout_s: float) -> None:
        """Always succeeds: the streams are in this process."""

    async def add(self, stream: StreamName, data: bytes, *, sequence: int | None = None) -> None:
        """Adds an entry, unless `sequence` is not above the last one."""
        self.put(stream, data, sequence)

    def put(self, stream: StreamName, data: bytes, sequence: int | None = None, note: str = "") -> None:
        """Adds an entry and wakes the readers."""
        target = self.streams[stream]
        if sequence is not None:
            if sequence <= target.last_sequence:
                return
            target.last_sequence = sequence
        target.added += 1
        target.entries[target.added] = data
        if note:
            target.notes[target.added] = note
        self.changed.set()

    async def live(self, stream: StreamName) -> list[bytes]:
        """Data of the entries that are pending or not yet delivered, oldest first."""
        target = self.streams[stream]
        return [data for i, data in target.entries.items() if i > target.delivered or i in target.pending]

    async def newest(self, stream: StreamName, *, before: str, count: int) -> list[Entry]:
        """Up to `count` entries older than `before`, newest first."""
        target = self.streams[stream]
        found = [i for i in reversed(target.entries) if not before or i < int(before)][:count]
        return [Entry(id=str(i), data=target.entries[i], note=target.notes.get(i, "")) for i in found]

    async def last_sequence(self, stream: StreamName) -> int:
        """Highest sequence number added; 0 for none."""
        return self.streams[stream].last_sequence

    async def trim(self, stream: StreamName) -> int:
        """Removes the entries before the first pending one, or all delivered ones if none is pending."""
        target = self.streams[stream]
        first = min(target.pending, default=target.delivered + 1)
        gone = [i for i in target.entries if i < first]
        for i in gone:
            del target.entries[i]
        return len(gone)

    async def stats(self, stream: StreamName) -> StreamStats:
        """Counts the entries, and measures the age of the oldest pending one."""
        target = self.streams[stream]
        oldest = min((pending.since for pending in target.pending.values()), default=time.monotonic())
        return StreamStats(
            length=len(target.entries),
            pending=len(target.pending),
            undelivered=sum(1 for i in target.entries if i > target.delivered),
            oldest_pending_s=time.monotonic() - oldest,
        )

    async def memory(self) -> BrokerMemory:
        """Size of the entries' data; there is no limit."""
        used = sum(len(data) for stream in self.streams.values() for data in stream.entries.values())
        return BrokerMemory(used_bytes=used, limit_bytes=0)

    async def certificate_expires(self) -> float:
        """No certificate: the streams are in this process."""
        return 0.0

    async def generation(self) -> str:
        """Number of times that the data was lost."""
        return str(self.life)

    def lose_everything(self) -> None:
        """What a wiped server does. Ids go on, as those of a server do, which are times: none names two entries."""
        for name, lost in self.streams.items():
            self.streams[name] = _Stream(added=lost.added, delivered=lost.added)
        self.life += 1

    async def close(self) -> None:
        """Does nothing: there is no connection."""


class MemoryConsumer:
    """Implements `Consumer` on a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, stream: StreamName, name: str, lease_s: float) -> None:
        self._broker = broker
        self._stream_name = stream
        self._name = name
        self._lease_s = lease_s

    @property
    def _stream(self) -> _Stream:
        """Another one since the broker has lost everything."""
        return self._broker.streams[self._stream_name]

    async def read(self, *, count: int, block_s: float) -> list[Entry]:
        """Takes orphans, else new entries, else waits for a change until `block_s` has passed."""
        end = time.monotonic() + block_s
        while True:
            taken = self._take_orphans(count) or self._take_new(count)
            left = end - time.monotonic()
            if taken or left <= 0:
                return taken
            self._broker.changed.clear()
            try:
                async with asyncio.timeout(min(left, 0.05)):
                    await self._broker.changed.wait()
            except TimeoutError:
                continue

    def _take_orphans(self, count: int) -> list[Entry]:
        horizon = time.monotonic() - self._lease_s
        orphans = [i for i, pending in self._stream.pending.items() if pending.since <= horizon]
        return [self._take(i) for i in orphans[:count]]

    def _take_new(self, count: int) -> list[Entry]:
        new = [i for i in self._stream.entries if i > self._stream.delivered][:count]
        if new:
            self._stream.delivered = new[-1]
        return [self._take(i) for i in new]

    def _take(self, i: int) -> Entry:
        before = self._stream.pending.get(i)
        deliveries = (before.deliveries if before else 0) + 1
        self._stream.pending[i] = _Pending(self._name, time.monotonic(), deliveries)
        return Entry(id=str(i), data=self._stream.entries[i], deliveries=deliveries)

    async def reclaim_own(self) -> list[Entry]:
        """Takes all pending entries of this name again, whatever their lease."""
        return [self._take(i) for i, pending in list(self._stream.pending.items()) if pending.owner == self._name]

    async def settle(self, entry: Entry, puts: Sequence[Put]) -> None:
        """Adds the entries and acks; one event loop makes that a transaction."""
        for put in puts:
            self._broker.put(put.stream, put.data, note=put.note)
        await self.ack([entry])

    async def ack(self, entries: Sequence[Entry]) -> None:
        """Removes the entries from the pending ones and forgets their failures."""
        for entry in entries:
            self._stream.pending.pop(int(entry.id), None)
            self._stream.failures.pop(int(entry.id), None)

    async def release(self, entries: Sequence[Entry]) -> None:
        """Hands the entries that this consumer still owns back, with the delivery not counted."""
        for entry in self._owned(entries):
            self._stream.pending[int(entry.id)] = _Pending("released", float("-inf"), max(0, entry.deliveries - 1))
        self._broker.changed.set()

    async def fail(self, entry: Entry) -> int:
        """Releases the entry and counts a failure."""
        await self.release([entry])
        failures = self._stream.failures.get(int(entry.id), 0) + 1
        self._stream.failures[int(entry.id)] = failures
        return failures

    async def renew(self, entries: Sequence[Entry]) -> None:
        """Starts the lease of the entries that this consumer still owns anew."""
        for entry in self._owned(entries):
            self._stream.pending[int(entry.id)].since = time.monotonic()

    def _owned(self, entries: Sequence[Entry]) -> list[Entry]:
        pending = self._stream.pending
        return [e for e in entries if int(e.id) in pending and pending[int(e.id)].owner == self._name]
