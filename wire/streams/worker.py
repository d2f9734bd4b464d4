"""The one consumer loop of the project: take, renew the claim while at work, settle; fail, bury, hand back.

A handler's effect is what it returns: entries for other streams, added in one transaction with the ack. A reported
failure buries a group after `MAX_FAILURES`; a delivery that just vanishes (the consumer died) only after
`MAX_DELIVERIES`, so that crashes of the machinery do not cost a group.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from headrace.wire.contracts import DropReason, Message, Purpose, Tombstone, decode, decode_header, encode
from headrace.wire.errors import ConfigError, ContractError, DiskError, TransientError
from headrace.wire.host.disk_fault import note, raise_noted
from headrace.wire.process.lifecycle import within
from headrace.wire.streams.protocol import Broker, Consumer, Entry, Put, StreamName
from headrace.wire.telemetry.logs import bind_trace, get_logger
from headrace.wire.telemetry.metrics import DEAD_LETTERS

MAX_FAILURES = 3
MAX_DELIVERIES = 20
_BLOCK_S = 0.5
_OWN_S = 0.01
_LOOK_S = 0.1
"""Until the capacity is asked again, unless `look_again` is set: rows also become free in the midst of a group."""

Handler = Callable[[Message], Awaitable[list[Put]]]
log = get_logger("headrace.wire.streams.worker")


class HandBack(Exception):
    """Raised by a handler that cannot take this entry now: it is released unharmed, and reading pauses a while."""

    def __init__(self, reason: str, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = delay_s


def dead_put(data: bytes, reason: DropReason, detail: str, service: str) -> Put:
    """The payload for people, with a note of why it is there."""
    why = {"reason": str(reason), "detail": detail[:500], "service": service}
    return Put(stream=StreamName.DEAD, data=data, note=json.dumps(why))


def is_lost(data: bytes, error: ContractError) -> bool:
    """Whether an entry that cannot be read was damaged on its way: the orchestrator then issues its group again.

    So does a broker whose log was damaged change no weight. A group that comes damaged every time is poison.
    """
    try:
        header = decode_header(data)
    except ContractError:
        return True  # It is of no known group.
    return error.is_damage and header.purpose is Purpose.TRAIN and header.attempt + 1 < MAX_FAILURES


def bury_puts(data: bytes, reason: DropReason, detail: str, service: str) -> list[Put]:
    """Entries that end a group for good: a tombstone where its end is awaited, the payload for people.

    A message whose header cannot be read has no known group: only its bytes are kept, the group is issued again.
    """
    dead = dead_put(data, reason, detail, service)
    try:
        header = decode_header(data)
    except ContractError:
        return [dead]
    tombstone = Message(header=header, body=Tombstone(reason=reason, detail=detail[:500], service=service))
    end = StreamName.SCORED if header.purpose is Purpose.TRAIN else StreamName.EVALUATED
    return [Put(stream=end, data=encode(tombstone)), dead]


class Worker:
    """Runs `handle` on the entries of one stream, up to `capacity()` more at a time."""

    def __init__(
        self,
        broker: Broker,
        stream: StreamName,
        name: str,
        handle: Handler,
        *,
        service: str,
        lease_s: float,
        capacity: Callable[[int], int],
        failure: DropReason,
        observe: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        """`capacity(in_flight)` returns how many more entries may be taken now (0 = closed gate).

        `failure` is the drop reason of a group whose handler kept failing. `observe` receives the outcome of each
        entry: settled, handed_back, failed, buried.
        """
        self._consumer: Consumer = broker.consumer(stream, name, lease_s=lease_s)
        self._stream = stream
        self._handle = handle
        self._service = service
        self._lease_s = lease_s
        self._capacity = capacity
        self._failure = failure
        self._observe = observe
        self._in_flight: dict[asyncio.Task[None], Entry] = {}
        self._at_work: set[str] = set()
        self._pause_until = 0.0
        self.look_again = asyncio.Event()
        """Set it when the capacity may have grown."""
        self._refused: ConfigError | None = None
        """What no retry cures, such as a broker's user without the right to settle."""

    @property
    def in_flight(self) -> int:
        """Entries taken and not yet settled."""
        return len(self._in_flight)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop`; then hands everything in flight back at once. Raises ConfigError for a refused settle."""
        renewal = asyncio.create_task(self._renew_forever())
        try:
            own = await self._consumer.reclaim_own()
            while own and not stop.is_set():
                own = own[self._start(own[: self._room()]) :]
                await asyncio.sleep(_OWN_S)
            await self._consumer.release(own)
            while not stop.is_set():
                raise_noted()
                if renewal.done():
                    renewal.result()
                if self._refused is not None:
                    raise self._refused
                self.look_again.clear()
                room = self._room()
                if room <= 0:
                    await within(self.look_again.wait(), _LOOK_S)
                    continue
                self._start(await self._read(room))
        finally:
            renewal.cancel()
            await self._abandon()

    def _room(self) -> int:
        if asyncio.get_running_loop().time() < self._pause_until:
            return 0
        return self._capacity(len(self._in_flight))

    async def _read(self, room: int) -> list[Entry]:
        try:
            return await self._consumer.read(count=room, block_s=_BLOCK_S)
        except TransientError as error:
            log.warning("broker_away", stream=self._stream, error=str(error))
            await asyncio.sleep(0.1)
            return []

    def _start(self, entries: list[Entry]) -> int:
        for entry in entries:
            if entry.id in self._at_work:
                continue  # Our own claim ran out while we were busy: the work goes on, the claim is ours again.
            self._at_work.add(entry.id)
            task = asyncio.create_task(self._one(entry))
            self._in_flight[task] = entry
            task.add_done_callback(self._finished)
        return len(entries)

    def _finished(self, task: asyncio.Task[None]) -> None:
        entry = self._in_flight.pop(task)
        self._at_work.discard(entry.id)
        self.look_again.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Settling failed for good: the entry stays pending and comes back by its lease.
            if isinstance(error, ConfigError):
                self._refused = error
            log.error("entry_left_pending", stream=self._stream, error=repr(error))

    async def _one(self, entry: Entry) -> None:
        if entry.deliveries > MAX_DELIVERIES:
            await self._bury(entry, DropReason.CRASH_LOOP, f"delivered {entry.deliveries} times")
            return
        try:
            message = decode(entry.data)
            bind_trace(message.header.group_id, message.header.traceparent)
            puts = await self._handle(message)
        except HandBack as wish:
            self._at_work.discard(entry.id)
            await self._consumer.release([entry])
            self._pause_until = asyncio.get_running_loop().time() + wish.delay_s
            self._observe("handed_back")
        except ContractError as error:
            if is_lost(entry.data, error):
                await self._keep_for_people(entry, error)
            else:
                await self._bury(entry, DropReason.POISON, str(error))
        except DiskError as fault:
            # Not the group's fault: it stays pending, and this process ends.
            note(fault)
            self._observe("failed")
        except Exception as error:
            log.exception("handler_failed", stream=self._stream, entry=entry.id)
            self._observe("failed")
            self._at_work.discard(entry.id)
            if await self._consumer.fail(entry) >= MAX_FAILURES:
                await self._bury(entry, self._failure, f"{type(error).__name__}: {error}")
        else:
            await self._consumer.settle(entry, puts)
            self._observe("settled")

    async def _keep_for_people(self, entry: Entry, error: ContractError) -> None:
        log.warning("damaged_entry", stream=self._stream, entry=entry.id, detail=str(error))
        DEAD_LETTERS.labels(self._stream, DropReason.POISON).inc()
        await self._consumer.settle(entry, [dead_put(entry.data, DropReason.POISON, str(error), self._service)])
        self._observe("buried")

    async def _bury(self, entry: Entry, reason: DropReason, detail: str) -> None:
        log.warning("buried", stream=self._stream, entry=entry.id, reason=reason, detail=detail)
        DEAD_LETTERS.labels(self._stream, reason).inc()
        await self._consumer.settle(entry, bury_puts(entry.data, reason, detail, self._service))
        self._observe("buried")

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with contextlib.suppress(TransientError):
                await self._consumer.renew(list(self._in_flight.values()))

    async def _abandon(self) -> None:
        tasks = dict(self._in_flight)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = [entry for task, entry in tasks.items() if task.cancelled()]
        with contextlib.suppress(TransientError):
            await self._consumer.release(cancelled)
