"""One run's streams on a Redis or Valkey server; `headrace.wire.streams.Broker` documents each method."""

import asyncio
import secrets
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError, ResponseError

from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.process import failpoints
from headrace.wire.streams.protocol import CONSUMER_GROUP, BrokerMemory, Entry, StreamName, StreamStats
from headrace.wire.streams.redis.certificate import expiry
from headrace.wire.streams.redis.client import AWAY, CHUNK, FIELD, NOTE, RedisLink, parse_id
from headrace.wire.streams.redis.consumer import RedisConsumer
from headrace.wire.streams.redis.facts import ServerFacts

_SENTINEL = "sentinel"
"""Key that is lost with the server's data."""
RETRY_DEADLINE_S = 60.0
_AT_ONCE = 8


class RedisBroker:
    """One run's streams on one server."""

    def __init__(self, url: str, run_id: str, *, retry_deadline_s: float = RETRY_DEADLINE_S) -> None:
        self._link = RedisLink(url, run_id, retry_deadline_s=retry_deadline_s)

    def consumer(self, stream: StreamName, name: str, *, lease_s: float) -> "RedisConsumer":
        """A consumer that shares the broker's connections."""
        return RedisConsumer(self._link, stream, name, lease_s=lease_s)

    async def check(self, timeout_s: float) -> None:
        """Pings the server, with retries; raises TransientError if it does not answer within `timeout_s`.

        Raises ConfigError for a cluster and for a server that evicts; a hosted one may refuse to report either.

        Then opens as many connections as operations come at once in a run, so that later a growing number is a leak;
        one that the server has no room for is opened when it is needed.
        """
        last: Exception = TransientError("no attempt has ended yet")

        async def ping() -> None:
            nonlocal last
            try:
                await self._link.writer.ping()
            except AWAY as error:
                last = error
                raise

        try:
            async with asyncio.timeout(timeout_s):
                await self._link.retry(ping)
        except TimeoutError:
            raise TransientError(f"the broker did not answer within {timeout_s} s: {last}") from last
        await asyncio.gather(*(self._link.writer.ping() for _ in range(_AT_ONCE)), return_exceptions=True)
        with suppress(RedisError):
            reason, fix = ServerFacts.of(await self._link.writer.info()).refusal()
            if reason:
                raise ConfigError(f"broker.url: {reason}: {fix}")

    async def add(self, stream: StreamName, data: bytes, *, sequence: int | None = None) -> None:
        """Adds an entry with id `sequence`-1. Without `sequence` a lost reply raises TransientError: added or not."""
        key = self._link.key(stream)
        if sequence is None:
            try:
                failpoints.reach("stream.before_add")
                await self._link.writer.xadd(key, {FIELD: data})
                failpoints.reach("stream.added")
            except AWAY as error:
                raise TransientError(f"XADD {key}: {error}") from error
            return

        async def once() -> None:
            try:
                failpoints.reach("stream.before_add")
                await self._link.writer.xadd(key, {FIELD: data}, id=f"{sequence}-1")
                failpoints.reach("stream.added")
            except ResponseError as error:
                if "equal or smaller" not in str(error):
                    raise

        await self._link.retry(once)

    async def live(self, stream: StreamName) -> list[bytes]:
        """Data of all unacked entries. The group is read before the pending list: what left meanwhile has moved on."""
        delivered, pending = await self._positions(stream)
        data: list[bytes] = []
        start = "-"
        while True:
            rows = await self._link.retry(self._link.writer.xrange, self._link.key(stream), start, "+", CHUNK)
            data += [f[FIELD] for i, f in rows if parse_id(i) > delivered or parse_id(i) in pending]
            if len(rows) < CHUNK:
                return data
            start = f"({rows[-1][0].decode()}"

    async def _positions(self, stream: StreamName) -> tuple[tuple[int, int], set[tuple[int, int]]]:
        """Last delivered id and all pending ids of the stream's group."""
        group = await self._group_info(stream)
        if group is None:
            return (-1, 0), set()
        pending: set[tuple[int, int]] = set()
        start = "-"
        while True:
            rows = await self._link.retry(
                self._link.writer.xpending_range, self._link.key(stream), CONSUMER_GROUP[stream], start, "+", CHUNK
            )
            pending.update(parse_id(row["message_id"]) for row in rows)
            if len(rows) < CHUNK:
                return parse_id(group["last-delivered-id"]), pending
            start = f"({rows[-1]['message_id'].decode()}"

    async def _group_info(self, stream: StreamName) -> dict[str, Any] | None:
        """XINFO GROUPS of the stream's one group; None if stream or group do not exist."""
        try:
            groups = await self._link.retry(self._link.writer.xinfo_groups, self._link.key(stream))
        except ResponseError as error:
            if "no such key" in str(error).lower():
                return None
            raise
        name = CONSUMER_GROUP.get(stream, "").encode()
        return next((group for group in groups if group["name"] == name), None)

    async def newest(self, stream: StreamName, *, before: str, count: int) -> list[Entry]:
        """Reads backwards from `before` with XREVRANGE."""
        top = f"({before}" if before else "+"
        rows = await self._link.retry(self._link.writer.xrevrange, self._link.key(stream), top, "-", count)
        return [Entry(id=i.decode(), data=f[FIELD], note=f.get(NOTE, b"").decode()) for i, f in rows]

    async def last_sequence(self, stream: StreamName) -> int:
        """Derives it from the last generated id; 0 if there is no stream."""
        try:
            info = await self._link.retry(self._link.writer.xinfo_stream, self._link.key(stream))
        except ResponseError as error:
            if "no such key" in str(error).lower():
                return 0
            raise
        return parse_id(info["last-generated-id"])[0]

    async def trim(self, stream: StreamName) -> int:
        """Removes what the group has acked. By MINID only: MAXLEN would drop unprocessed work."""
        delivered, pending = await self._positions(stream)
        if delivered[0] < 0:
            return 0
        first, second = min(pending) if pending else (delivered[0], delivered[1] + 1)
        minid = f"{first}-{second}"
        return int(
            await self._link.retry(self._link.writer.xtrim, self._link.key(stream), minid=minid, approximate=False)
        )

    async def stats(self, stream: StreamName) -> StreamStats:
        """Length, pending count, lag, and the time since the first pending entry was delivered."""
        key = self._link.key(stream)
        length = int(await self._link.retry(self._link.writer.xlen, key))
        group = await self._group_info(stream)
        if group is None:
            return StreamStats(length=length, pending=0, undelivered=length, oldest_pending_s=0.0)
        rows = await self._link.retry(self._link.writer.xpending_range, key, CONSUMER_GROUP[stream], "-", "+", 1)
        oldest = rows[0]["time_since_delivered"] / 1000 if rows else 0.0
        return StreamStats(
            length=length,
            pending=int(group["pending"]),
            undelivered=int(group["lag"] or 0),
            oldest_pending_s=oldest,
        )

    async def memory(self) -> BrokerMemory:
        """Memory of the whole server. INFO names no container's limit: `total_system_memory` is the machine's."""
        info = await self._link.retry(self._link.writer.info, "memory")
        limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
        return BrokerMemory(used_bytes=int(info.get("used_memory", 0)), limit_bytes=limit)

    async def certificate_expires(self) -> float:
        """Expiry of the certificate that a new connection is shown; tried once, independently of open connections."""
        try:
            return await expiry(self._link.writer)
        except AWAY as error:
            raise TransientError(f"no new connection to the broker: {error}") from error

    async def generation(self) -> str:
        """The server's `run_id` and a sentinel key that is lost with the data."""
        key = self._link.key(_SENTINEL)
        info = await self._link.retry(self._link.writer.info, "server")
        await self._link.retry(self._link.writer.set, key, secrets.token_hex(8), nx=True)
        sentinel = await self._link.retry(self._link.writer.get, key)
        return f"{info['run_id']}/{(sentinel or b'').decode()}"

    async def close(self) -> None:
        """Closes the connections to the server."""
        await self._link.close()
