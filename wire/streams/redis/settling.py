"""Sends the settles of one turn of the event loop in one transaction: one round trip, however many groups ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.wire.process import failpoints
from headrace.wire.streams.protocol import Entry, Put
from headrace.wire.streams.redis.client import FIELD, NOTE, RedisLink

MOST_ENTRIES = 64
MOST_BYTES = 8 * 1024 * 1024
"""Bytes of the puts of one transaction; a larger settle is alone in one."""


@dataclass(frozen=True, slots=True)
class _Settle:
    entry: Entry
    puts: Sequence[Put]
    done: "asyncio.Future[None]"

    @property
    def size(self) -> int:
        """Bytes that it puts."""
        return sum(len(put.data) for put in self.puts)


class SettleBatch:
    """The settles of one consumer that wait for the end of this turn."""

    def __init__(self, link: RedisLink, key: str, group: str, failures: str) -> None:
        """`failures`: key of the hash with the failures of each entry."""
        self._link, self._key, self._group, self._failures = link, key, group, failures
        self._waiting: list[_Settle] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def add(self, entry: Entry, puts: Sequence[Put]) -> None:
        """Settles with the others of this turn. Raises what the client raises: the transaction may have run then."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        one = _Settle(entry, puts, loop.create_future())
        self._waiting.append(one)
        await one.done

    async def alone(self, entry: Entry, puts: Sequence[Put]) -> None:
        """Settles in a transaction of its own: after a failure, of which another's settle may be the cause."""
        await self._execute([_Settle(entry, puts, asyncio.get_running_loop().create_future())])

    def _send(self) -> None:
        waiting, self._waiting = [one for one in self._waiting if not one.done.done()], []
        for batch in batches(waiting):
            task = asyncio.create_task(self._settle(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _settle(self, batch: Sequence[_Settle]) -> None:
        error: BaseException | None = None
        try:
            await self._execute(batch)
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise
        finally:
            for one in batch:
                if not one.done.done():
                    if error is None:
                        one.done.set_result(None)
                    elif isinstance(error, Exception):
                        one.done.set_exception(error)
                    else:
                        one.done.cancel()

    async def _execute(self, batch: Sequence[_Settle]) -> None:
        pipe: Any
        async with self._link.writer.pipeline(transaction=True) as pipe:
            for one in batch:
                for put in one.puts:
                    note = {NOTE: put.note.encode()} if put.note else {}
                    pipe.xadd(self._link.key(put.stream), {FIELD: put.data, **note})
                pipe.xack(self._key, self._group, one.entry.id)
                pipe.hdel(self._failures, one.entry.id)
            failpoints.reach("stream.before_settle")
            await pipe.execute()
            failpoints.reach("stream.settled")


def batches(settles: Sequence[_Settle]) -> list[list[_Settle]]:
    """The settles in order, in transactions within `MOST_ENTRIES` and `MOST_BYTES`. Pure."""
    found: list[list[_Settle]] = []
    size = 0
    for one in settles:
        if not found or len(found[-1]) == MOST_ENTRIES or size + one.size > MOST_BYTES:
            found.append([])
            size = 0
        found[-1].append(one)
        size += one.size
    return found
