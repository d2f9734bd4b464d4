"""Connections of a client to the server, or to the one that Sentinels name; each with the project's repairs."""

import asyncio
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from headrace.wire.errors import ConfigError
from headrace.wire.streams.redis.sentinel import is_sentinel, sentinel_address

MAX_CONNECTIONS = 64
CONNECTION_S = 20.0
"""Seconds for which an operation waits for a free connection."""
_CONNECT_S = 5.0
_NO_ROOM = "MISCONF"


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
            if str(error).startswith(_NO_ROOM):
                # Further answers of a pipeline are unread.
                connection: Any = self
                await connection.disconnect(nowait=True)
                raise BrokerDiskError(f"its disk refuses: {error}") from error
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


class _SentinelPool(SentinelConnectionPool, _WaitingPool):
    """A pool whose connections go to the server that the Sentinels name at that moment."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """As redis-py has it, and with all connections those to the Sentinels."""
        parent: Any = super()
        await parent.disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


def client_of(url: str, *, socket_timeout: float) -> Any:
    """A client of redis-py for a URL; connects at the first command. Raises ValueError for a URL that cannot work."""
    made = _sentinel_pool if is_sentinel(url) else _WaitingPool.from_url
    pool: Any = made(
        url,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        socket_timeout=socket_timeout,
        socket_connect_timeout=_CONNECT_S,
        max_connections=MAX_CONNECTIONS,
        timeout=CONNECTION_S,
        protocol=2,
        # Else each connection first sends the server the client's name.
        driver_info=None,
    )
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_Cancellable, kind), {})
    try:
        pool.make_connection()  # Without I/O.
    except TypeError as error:
        raise ConfigError(f"the broker's URL has a parameter that does not exist: {error}") from None
    return aioredis.Redis.from_pool(pool)


_OF_BOTH = ("retry", "retry_on_error", "socket_connect_timeout", "protocol", "driver_info")
"""Options for connections to Sentinels too."""


def _sentinel_pool(url: str, **options: object) -> _SentinelPool:
    address = sentinel_address(url)
    server = {**parse_url(address.server)}
    server.pop("host", None)
    encrypted = server.pop("connection_class", None) is SSLConnection
    asking = {name: options[name] for name in _OF_BOTH} | {"socket_timeout": _CONNECT_S, "ssl": encrypted}
    asking |= {name: value for name, value in server.items() if name.startswith("ssl_")}
    kind = SentinelManagedSSLConnection if encrypted else SentinelManagedConnection
    # redis-py has no types of these two.
    manager = Sentinel(address.sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    pool = _SentinelPool(address.name, manager, connection_class=kind, **options, **server)  # type: ignore[no-untyped-call]
    return pool
