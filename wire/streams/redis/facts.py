"""Facts that a server reports about itself, for its setup."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from redis.exceptions import RedisError

from headrace.wire.errors import TransientError
from headrace.wire.streams.redis.client import AWAY, RedisLink


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Fields are empty where the server does not report them (a hosted one may refuse CONFIG)."""

    kind: str
    """`redis` or `valkey`."""
    version: str
    eviction: str
    """`maxmemory-policy`."""
    persistent: bool
    """It keeps an append-only file."""
    cluster: bool

    @classmethod
    def of(cls, info: Mapping[str, object]) -> "ServerFacts":
        """Reads the answer to INFO."""
        valkey = info.get("valkey_version")
        return cls(
            kind="valkey" if valkey else "redis",
            version=str(valkey or info.get("redis_version", "")),
            eviction=str(info.get("maxmemory_policy", "")),
            persistent=bool(info.get("aof_enabled")),
            cluster=bool(info.get("cluster_enabled")),
        )

    def refusal(self) -> tuple[str, str]:
        """Why it cannot be a broker, and the way out; two empty strings if it can."""
        if self.cluster:
            return (
                "it is a cluster",
                "use one server: services follow no redirections",
            )
        if self.eviction not in ("", "noeviction"):
            fix = "CONFIG SET maxmemory-policy noeviction: an evicting server forgets work"
            return f"maxmemory-policy is {self.eviction}", fix
        return "", ""


async def server_facts(url: str, *, timeout_s: float) -> ServerFacts:
    """Connects and reads INFO.

    Raises TransientError if no server answers in time, or it refuses; ValueError for an invalid URL.
    """
    link = RedisLink(url, "doctor", retry_deadline_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            info: dict[str, object] = await link.writer.info()
    except (*AWAY, RedisError, TimeoutError) as error:
        raise TransientError(f"no Redis or Valkey answers: {str(error) or type(error).__name__}") from error
    finally:
        await link.close()
    return ServerFacts.of(info)
