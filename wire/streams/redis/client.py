"""Client profiles, retries of idempotent commands, and the server's answers in one shape.

Two profiles, because redis-py's defaults lose or duplicate: the *writer* never retries by itself (a retried XADD adds
twice, a retried EXEC runs twice), the *reader* has a socket timeout longer than any BLOCK (else an idle stream is an
error). What is idempotent is retried by `RedisLink.retry`, with a deadline.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.streams.redis.address import check_address

T = TypeVar("T")

FIELD = b"m"
NOTE = b"n"
CHUNK = 200
MAX_BLOCK_S = 5.0
MAX_CONNECTIONS = 64
CONNECTION_S = 20.0
"""Seconds for which an operation waits for a free connection."""
_NO_ROOM = "MISCONF"
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
        self.writer = _client(url, socket_timeout=5.0)
        self.reader = _client(url, socket_timeout=MAX_BLOCK_S + 5.0)

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
            try:
                return await command(*args, **options)
            except AWAY as error:
                if time.monotonic() + delay > end:
                    name = getattr(command, "__name__", "command")
                    raise TransientError(f"{name}: the broker was away for {self.deadline_s:.0f} s: {error}") from error
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)


class BrokerDiskError(RedisConnectionError):
    """The server refuses writes because it cannot write its own log; the message is its reason (a full disk)."""


class _Cancellable:
    """A connection whose sends can be cancelled at any moment.

    redis-py sends within `asyncio.wait_for`, which on Python 3.11 swallows a cancellation that comes just as the send
    ends (cpython issue 86296): a task that does nothing but talk to the broker would live on for ever.
    """

    async def send_packed_command(self, *args: object, **options: object) -> None:
        """As redis-py has it; the connection has an unread answer when it ends so, and is closed."""
        parent: Any = super()
        await parent.send_packed_command(*args, **options)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            connection: Any = self
            await connection.disconnect(nowait=True)
            raise asyncio.CancelledError

    async def read_response(self, *args: object, **options: object) -> object:
        """As redis-py has it, but a server whose disk refuses is away until there is room, not our error."""
        parent: Any = super()
        try:
            answer: object = await parent.read_response(*args, **options)
        except ResponseError as error:
            # Further answers of a pipeline are unread.
            connection: Any = self
            if str(error).startswith(_NO_ROOM):
                await connection.disconnect(nowait=True)
                raise BrokerDiskError(f"its disk refuses: {error}") from error
            if isinstance(error, NoPermissionError):
                await connection.disconnect(nowait=True)
                raise ConfigError(
                    f"the broker's user may not do this: {error}; `headrace broker acl` writes what each role needs"
                ) from error
            raise
        return answer


class BrokerBusyError(RedisConnectionError):
    """No connection became free in time: the command was never sent."""


class _WaitingPool(aioredis.BlockingConnectionPool):
    """Operations beyond its connections wait for one, up to a deadline, instead of failing at once."""

    async def get_connection(self, *args: object, **options: object) -> Any:
        """As redis-py has it; raises BrokerBusyError at the deadline."""
        parent: Any = super()
        try:
            return await parent.get_connection(*args, **options)
        except RedisConnectionError as error:
            if "No connection available" not in str(error):
                raise
            raise BrokerBusyError(
                f"waited {CONNECTION_S:g} s for one of {MAX_CONNECTIONS} connections to the broker"
            ) from error


def _client(url: str, *, socket_timeout: float) -> Any:
    pool: Any = _WaitingPool.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        socket_timeout=socket_timeout,
        socket_connect_timeout=5.0,
        max_connections=MAX_CONNECTIONS,
        timeout=CONNECTION_S,
        protocol=2,
        # Else each connection tells the server the client's name: a command that a user of ours may not run.
        driver_info=None,
    )
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_Cancellable, kind), {})
    try:
        pool.make_connection()  # Without I/O.
    except TypeError as error:
        raise ConfigError(f"the broker's URL has a parameter that does not exist: {error}") from None
    return aioredis.Redis.from_pool(pool)


def parse_id(raw: bytes | str) -> tuple[int, int]:
    """`milliseconds-sequence` as two numbers, which sort as the server sorts."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


def stream_rows(answer: Any) -> list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """XREADGROUP's answer in one shape, whatever the protocol version."""
    if not answer:
        return []
    return (
        [(key, rows[0] if rows and isinstance(rows[0], list) else rows) for key, rows in answer.items()]
        if isinstance(answer, dict)
        else list(answer)
    )
