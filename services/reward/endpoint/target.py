"""An endpoint's URL, taken apart strictly: what browsers and resolvers would guess is refused. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import urlsplit

from headrace.services.reward.endpoint.addresses import Address, why_forbidden
from headrace.wire.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")
"""A host whose last label is a number is read as an IPv4 address by resolvers, in whatever form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go; only the config sets it."""

    scheme: str
    host: str
    """Lower case; an IPv6 address without brackets."""
    port: int
    path: str
    """Path of the base URL, without a slash at its end."""
    address: Address | None
    """None = `host` is a name."""
    is_listed: bool
    """The config allows it to be private or loopback."""

    @property
    def url(self) -> str:
        """The base URL in its one form."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def why_forbidden(self, address: Address) -> str | None:
        """What kind of address it is if requests to this target must not go there."""
        return why_forbidden(address, is_listed=self.is_listed, is_literal=self.address is not None)


def read_target(url: str, allow_hosts: Sequence[str], what: str) -> Target:
    """Raises ConfigError naming `what`, the URL's fault and the way out."""
    if not url.isascii() or not url.isprintable() or re.search(r"[\s\\]", url):
        raise ConfigError(f"{what}: url {url!a}: only printable ASCII; write other hosts as punycode (xn--...)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{what}: url {url!r}: {error}") from None
    if parts.scheme not in _PORTS:
        raise ConfigError(f"{what}: url {url!r}: it must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ConfigError(f"{what}: the url holds a user name: give `api_key_file` instead")
    if parts.query or parts.fragment:
        raise ConfigError(f"{what}: url {url!r}: only scheme, host, port and path")
    host = parts.hostname or ""
    address = _address(host, is_bracketed="[" in parts.netloc, what=f"{what}: url {url!r}")
    port = _PORTS[parts.scheme] if port is None else port
    text = str(address) if address is not None else host
    target = Target(
        scheme=parts.scheme,
        host=text,
        port=port,
        path=parts.path.rstrip("/"),
        address=address,
        is_listed=any(entry.lower() in _spellings(text, port) for entry in allow_hosts),
    )
    return target


def _spellings(host: str, port: int) -> set[str]:
    return {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}


def _address(host: str, *, is_bracketed: bool, what: str) -> Address | None:
    """The address that the host is; None for a name. Raises ConfigError for what is neither."""
    try:
        if is_bracketed:
            return IPv6Address(host)
        if _NUMBER.match(host.rpartition(".")[2]):
            return IPv4Address(host)
    except AddressValueError:
        raise ConfigError(
            f"{what}: {host!r} is no address in its plain form, such as 192.0.2.1 or [2001:db8::1]"
        ) from None
    if not _NAME.match(host):
        raise ConfigError(f"{what}: {host!r} is no host name; no dot at its end, no characters but a-z, 0-9, - and _")
    return None
