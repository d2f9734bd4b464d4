"""Client profiles, retries of idempotent commands, and the server's answers in one shape.

Two profiles, because redis-py's defaults lose or duplicate: the *writer* never retries by itself (a retried XADD adds
twice, a retried EXEC runs twice), the *reader* has a socket timeout longer than any BLOCK (else an idle stream is an
error). What is idempotent is retried by `RedisLink.retry`, with a deadline.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError
from redis.exceptions import TimeoutError as RedisTimeoutError

from headrace.wire.errors import TransientError
from headrace.wire.peers.outage import Outage
from headrace.wire.peers.urls import without_credentials
from headrace.wire.streams.redis.address import check_address
from headrace.wire.streams.redis.pools import client_of

T = TypeVar("T")

FIELD = b"m"
NOTE = b"n"
CHUNK = 200
MAX_BLOCK_S = 5.0
AWAY = (RedisConnectionError, RedisTimeoutError, OutOfMemoryError, OSError)
"""The server is not there, too slow, or full: the same command may succeed later."""


def key_of(run_id: str, name: str) -> str:
    """The server's key of a stream of a run. All keys share a hash tag, so that a transaction may span them."""
    return f"headrace:{{{run_id}}}:{name}"


class RedisLink:
    """The two clients of one run on one server."""

    def __init__(self, url: str, run_id: str, *, retry_deadline_s: float) -> None:
        """Raises ValueError for a URL that cannot work."""
        check_address(url)
        self._run_id = run_id
        self.deadline_s = retry_deadline_s
        self.outage = Outage("broker", without_credentials(url))
        self.writer = client_of(url, socket_timeout=5.0)
        self.reader = client_of(url, socket_timeout=MAX_BLOCK_S + 5.0)

    def key(self, name: str) -> str:
        """The server's key of a stream."""
        return key_of(self._run_id, name)

    async def close(self) -> None:
        """Closes all connections."""
        await self.writer.aclose()
        await self.reader.aclose()

    async def retry(self, command: Callable[..., Awaitable[T]], *args: object, **options: object) -> T:
        """Repeats an idempotent command while the server is away; raises TransientError at the deadline."""
        end = time.monotonic() + self.deadline_s
        delay = 0.02
        while True:
            began = time.monotonic()
            try:
                answer = await command(*args, **options)
                self.outage.over()
                return answer
            except AWAY as error:
                self.outage.failed(error, began=began)
                if time.monotonic() + delay > end:
                    name = getattr(command, "__name__", "command")
                    raise TransientError(f"{name}: the broker was away for {self.deadline_s:.0f} s: {error}") from error
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)


def parse_id(raw: bytes | str) -> tuple[int, int]:
    """`milliseconds-sequence` as two numbers, which sort as the server sorts."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)
