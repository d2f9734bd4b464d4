"""Where an endpoint's requests go: only the config sets it, and what is not public must be in `reward.allow_hosts`."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from headrace.wire.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The base URL, taken apart."""

    url: str
    """Without a slash at its end."""
    scheme: str
    host: str
    port: int
    is_listed: bool
    """The config allows it to be private or loopback."""

    def check(self, addresses: Sequence[str], what: str) -> None:
        """Raises ConfigError, which names `what` and the way out, for an address that is not public and not listed."""
        for text in () if self.is_listed else addresses:
            address = ip_address(text.partition("%")[0])
            if address.is_multicast or not address.is_global:
                raise ConfigError(
                    f"{what} at {self.url}: {text} is not a public address: if you trust it, set "
                    f"reward.allow_hosts = ['{self.host}:{self.port}']"
                )


def read_target(url: str, allow_hosts: Sequence[str], what: str) -> Target:
    """Raises ConfigError, which names `what` and the URL's fault."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        raise ConfigError(f"{what}: url {url!r}: {error}") from None
    if parts.scheme not in _PORTS or not host:
        raise ConfigError(f"{what}: url {url!r}: it must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ConfigError(f"{what}: the url holds a user name: give `api_key_file` instead")
    if parts.query or parts.fragment:
        raise ConfigError(f"{what}: url {url!r}: only scheme, host, port and path")
    port = port or _PORTS[parts.scheme]
    spellings = {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}
    target = Target(
        url=url.rstrip("/"),
        scheme=parts.scheme,
        host=host,
        port=port,
        is_listed=any(entry.lower() in spellings for entry in allow_hosts),
    )
    try:
        literal = [str(ip_address(host))]
    except ValueError:
        return target
    target.check(literal, what)
    return target
