"""One consumer of one stream's group; `headrace.wire.streams.Consumer` documents each method."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.process import failpoints
from headrace.wire.streams.protocol import CONSUMER_GROUP, Entry, Put, StreamName
from headrace.wire.streams.redis.client import (
    AWAY,
    CHUNK,
    FIELD,
    MAX_BLOCK_S,
    RedisLink,
)
from headrace.wire.streams.redis.pools import BrokerBusyError
from headrace.wire.streams.redis.settling import SettleBatch
from headrace.wire.streams.redis.still_claims import Claim, StillClaims
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.telemetry.metrics import REDELIVERIES, expect_dead_letters

_RELEASED = "released"
"""Pseudo consumer that owns what was handed back; its entries look idle for a day, so the next claim takes them."""
_RELEASED_IDLE_MS = 86_400_000
_RENEWS_BEHIND = 8
"""Behind this part of a lease an entry is renewed; owners renew each third of one."""
_SEEN_ALL = b"0-0"
"""What XAUTOCLAIM returns once it has looked at all pending entries."""
_MOMENT_S = 0.05
"""Time in which any claim's idle time moves, unless the server's clock was set back."""

log = get_logger("headrace.wire.streams.redis")


class RedisConsumer:
    """One named consumer; implements `headrace.wire.streams.Consumer`."""

    def __init__(self, link: RedisLink, stream: StreamName, name: str, *, lease_s: float) -> None:
        self._link = link
        self._key = link.key(stream)
        self._stream = stream
        self._group = CONSUMER_GROUP[stream]
        self._name = name
        self._lease_ms = int(lease_s * 1000)
        self._failures = link.key(f"failures:{stream}")
        self._still = StillClaims(lease_s)
        self._settles = SettleBatch(link, self._key, self._group, self._failures)
        expect_dead_letters(stream)

    async def read(self, *, count: int, block_s: float) -> list[Entry]:
        """Claims orphans, else waits for new entries. A lost reply leaves them pending: orphans after the lease."""
        try:
            rest, rows, _ = await self._link.writer.xautoclaim(
                self._key, self._group, self._name, self._lease_ms, count=count
            )
            if not rows and rest != _SEEN_ALL:
                rows = await self._claim_behind(count)
            rows = rows or await self._claim_still(count)
            if rows:
                failpoints.reach("stream.claimed")
                return await self._with_deliveries(rows)
            block_ms = max(1, int(min(block_s, MAX_BLOCK_S) * 1000))
            answer = await self._link.reader.xreadgroup(
                self._group, self._name, {self._key: ">"}, count=count, block=block_ms
            )
        except ResponseError as error:
            await self._recreate(error)
            return []
        except AWAY as error:
            raise TransientError(f"read {self._key}: {error}") from error
        if answer:
            failpoints.reach("stream.read")
        return [Entry(id=i.decode(), data=f[FIELD]) for _, rows in answer or () for i, f in rows]

    async def _claim_behind(self, count: int) -> Any:
        """Claims orphans that follow many live claims: XAUTOCLAIM looks at ten times `count` pending entries alone.

        Else they would follow what is read anew, against the order of the stream.
        """
        writer = self._link.writer
        while found := await writer.xpending_range(self._key, self._group, "-", "+", count, idle=self._lease_ms):
            ids = [_claim_of(row).entry_id for row in found]
            # None, where another consumer was faster: what it has claimed is not listed again.
            if rows := await writer.xclaim(self._key, self._group, self._name, self._lease_ms, ids):
                return rows
        return []

    async def _claim_still(self, count: int) -> Any:
        """Claims what has no live owner though the server, whose clock was set back, cannot tell."""
        if not self._still.is_due(time.monotonic()):
            return []
        claims = await self._claims()
        if not all(claim.idle_ms for claim in claims):
            # One that was renewed a moment ago moves meanwhile.
            await asyncio.sleep(_MOMENT_S)
            claims = await self._claims()
        ids = self._still.look(claims, time.monotonic())[:count]
        if not ids:
            return []
        log.warning("broker_clock_set_back", stream=self._key, claimed=len(ids))
        return await self._link.writer.xclaim(self._key, self._group, self._name, 0, ids)

    async def _claims(self) -> list[Claim]:
        rows = await self._link.writer.xpending_range(self._key, self._group, "-", "+", CHUNK)
        return [_claim_of(row) for row in rows]

    async def reclaim_own(self) -> list[Entry]:
        """Reads this consumer's pending entries from the first id on, in chunks."""
        entries: list[Entry] = []
        last = "0"
        while True:
            try:
                answer = await self._link.retry(
                    self._link.writer.xreadgroup, self._group, self._name, {self._key: last}, count=CHUNK
                )
            except ResponseError as error:
                await self._recreate(error)
                return entries
            rows = [row for _, rows in answer or () for row in rows]
            if not rows:
                return entries
            entries += await self._with_deliveries([row for row in rows if row[1]])
            last = rows[-1][0].decode()

    async def settle(self, entry: Entry, puts: Sequence[Put]) -> None:
        """Repeats the transaction after a lost reply while the entry is still pending here: else it ran."""
        end = time.monotonic() + self._link.deadline_s
        delay, settle = 0.02, self._settles.add
        while True:
            try:
                await settle(entry, puts)
                return
            except AWAY as error:
                # The transaction ran or it did not: the ack in it shows which. An owner that is not us works on it now.
                if isinstance(error, BrokerBusyError):
                    log.warning("broker_busy", stream=self._key, entry=entry.id, error=str(error))
                else:
                    log.warning("exec_ambiguous", stream=self._key, entry=entry.id, error=str(error))
                if time.monotonic() > end:
                    what = f"the broker to settle {entry.id} of {self._key}"
                    raise WaitTimeoutError(what, self._link.deadline_s) from error
            settle = self._settles.alone
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)
            if await self._owner(entry.id) != self._name:
                return

    async def ack(self, entries: Sequence[Entry]) -> None:
        """Acks the entries in one XACK."""
        if entries:
            ids = [entry.id for entry in entries]
            failpoints.reach("stream.before_ack")
            await self._link.retry(self._link.writer.xack, self._key, self._group, *ids)
            failpoints.reach("stream.acked")

    async def release(self, entries: Sequence[Entry]) -> None:
        """Claims the entries that this consumer still owns for the pseudo consumer `released`."""
        for entry in await self._owned(entries):
            failpoints.reach("stream.before_release")
            await self._link.retry(self._give_up, entry, self._link.writer)
            failpoints.reach("stream.released")

    def _give_up(self, entry: Entry, client: Any) -> Any:
        return client.xclaim(
            self._key,
            self._group,
            _RELEASED,
            0,
            [entry.id],
            idle=_RELEASED_IDLE_MS,
            retrycount=max(0, entry.deliveries - 1),
            justid=True,
        )

    async def fail(self, entry: Entry) -> int:
        """Counts and releases in one transaction, which is never retried: a lost reply raises TransientError."""
        try:
            async with self._link.writer.pipeline(transaction=True) as pipe:
                pipe.hincrby(self._failures, entry.id, 1)
                self._give_up(entry, pipe)
                failpoints.reach("stream.before_fail")
                failures, _ = await pipe.execute()
                failpoints.reach("stream.failed")
        except AWAY as error:
            raise TransientError(f"fail {entry.id} of {self._key}: {error}") from error
        return int(failures)

    async def renew(self, entries: Sequence[Entry]) -> None:
        """Resets the idle time of entries still owned; an entry that another consumer has claimed is not taken back.

        No command claims what is still one's own: between the look and the claim another consumer may have it. But then
        it has been idle for a moment only, and the claim is for entries that have been idle for longer. An idle time
        of 0 comes from a moment ago, which no other consumer claims, or of a server whose clock was set back.
        """
        idle_ms = self._lease_ms // _RENEWS_BEHIND
        claims = [claim for entry in entries if (claim := await self._claim(entry.id)) and claim.owner == self._name]
        for least_ms, ids in (
            (idle_ms, [claim.entry_id for claim in claims if claim.idle_ms]),
            (0, [claim.entry_id for claim in claims if not claim.idle_ms]),
        ):
            if ids:
                failpoints.reach("stream.before_renew")
                await self._link.retry(
                    self._link.writer.xclaim, self._key, self._group, self._name, least_ms, ids, justid=True
                )
                failpoints.reach("stream.renewed")

    async def _owned(self, entries: Sequence[Entry]) -> list[Entry]:
        return [entry for entry in entries if await self._owner(entry.id) == self._name]

    async def _claim(self, entry_id: str) -> Claim | None:
        row = await self._pending_row(entry_id)
        return _claim_of(row) if row else None

    async def _owner(self, entry_id: str) -> str | None:
        """Name of the consumer that has the entry; None if none: it is acked (or the server lost its data)."""
        row = await self._pending_row(entry_id)
        return row["consumer"].decode() if row else None

    async def _pending_row(self, entry_id: str) -> dict[str, Any] | None:
        try:
            rows = await self._link.retry(
                self._link.writer.xpending_range, self._key, self._group, entry_id, entry_id, 1
            )
        except ResponseError as error:
            await self._recreate(error)
            return None
        return rows[0] if rows else None

    async def _with_deliveries(self, rows: list[tuple[bytes, dict[bytes, bytes]]]) -> list[Entry]:
        entries = []
        for raw_id, fields in rows:
            pending = await self._pending_row(raw_id.decode())
            deliveries = int(pending["times_delivered"]) if pending else 1
            if deliveries > 1:
                REDELIVERIES.labels(self._stream).inc()
            entries.append(Entry(id=raw_id.decode(), data=fields[FIELD], deliveries=deliveries))
        return entries

    async def _recreate(self, error: ResponseError) -> None:
        """Makes the group (again) from the stream's beginning: at first use, and after the server lost its data."""
        if "NOGROUP" not in str(error) and "no such key" not in str(error).lower():
            raise error

        async def create() -> None:
            try:
                await self._link.writer.xgroup_create(self._key, self._group, id="0", mkstream=True)
            except ResponseError as exists:
                if "BUSYGROUP" not in str(exists):
                    raise

        await self._link.retry(create)


def _claim_of(row: dict[str, Any]) -> Claim:
    """A row of XPENDING."""
    return Claim(
        row["message_id"].decode(), row["consumer"].decode(), int(row["times_delivered"]), row["time_since_delivered"]
    )
