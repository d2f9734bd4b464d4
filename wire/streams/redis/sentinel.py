"""The URL of a server that Sentinels watch: they name the server that takes writes now."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.wire.errors import ConfigError

_PORT = 26379
_WAY_OUT = "redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/0, NAME as in the Sentinels' config"


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """A URL `redis+sentinel://` or `rediss+sentinel://`, taken apart."""

    sentinels: tuple[tuple[str, int], ...]
    """Host and port of each."""
    name: str
    """What the Sentinels call the server."""
    server: str
    """A `redis://` URL with everything but the server's host: user, database, parameters."""


def is_sentinel(url: str) -> bool:
    """Whether a URL names Sentinels."""
    return urlsplit(url).scheme.endswith("+sentinel")


def sentinel_address(url: str) -> SentinelAddress:
    """Takes a URL apart. Raises ConfigError, without the password, for one without a Sentinel or a name. Pure."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    name, _, database = parts.path.strip("/").partition("/")
    sentinels = tuple(_host(one.strip(), hosts) for one in hosts.split(","))
    if parts.scheme not in ("redis+sentinel", "rediss+sentinel") or not name or (not database.isdecimal() and database):
        raise ConfigError(f"{parts.scheme}://{hosts}{parts.path}: {_WAY_OUT}")
    server = parts._replace(scheme=parts.scheme.partition("+")[0], netloc=f"{user}{at}by-sentinel", path=f"/{database}")
    return SentinelAddress(sentinels, name, server.geturl())


def _host(text: str, hosts: str) -> tuple[str, int]:
    try:
        found = urlsplit(f"//{text}")
        if found.hostname:
            return found.hostname, found.port or _PORT
    except ValueError:
        pass
    raise ConfigError(f"{hosts}: {text!r} is no HOST:PORT of a Sentinel: {_WAY_OUT}")
