"""What a server says of itself: for people who set one up."""

import asyncio
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from wire.errors import TransientError
from wire.streams.redis.client import AWAY, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Empty where the server does not tell (a hosted one may refuse CONFIG)."""

    kind: str
    """`redis` or `valkey`."""
    version: str
    eviction: str
    """`maxmemory-policy`."""
    persistent: bool
    """It keeps an append-only file."""


async def server_facts(url: str, *, timeout_s: float) -> ServerFacts:
    """Raises TransientError if nobody answers in time, or refuses; ValueError for a URL that is none."""
    link = Link(url, "doctor", retry_deadline_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            info: dict[str, Any] = await link.writer.info()
    except (*AWAY, RedisError, TimeoutError) as error:
        raise TransientError(f"no Redis or Valkey answers: {str(error) or type(error).__name__}") from error
    finally:
        await link.close()
    valkey = info.get("valkey_version")
    return ServerFacts(
        kind="valkey" if valkey else "redis",
        version=str(valkey or info.get("redis_version", "")),
        eviction=str(info.get("maxmemory_policy", "")),
        persistent=bool(info.get("aof_enabled")),
    )
