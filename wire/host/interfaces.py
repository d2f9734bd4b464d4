"""The addresses and interfaces of this machine: gloo would take what the host's name resolves to.

In containers that is often an address which no other machine reaches.
"""

import contextlib
import fcntl
import socket
import struct
from ipaddress import ip_address
from pathlib import Path

_SIOCGIFADDR = 0x8915
_IPV6 = Path("/proc/net/if_inet6")


def address_towards(peer: str) -> str:
    """The address of this machine on the way to `peer` (its own name included). Raises OSError if there is no way."""
    family, kind, _, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        own: str = probe.getsockname()[0]
    return own


def address_of(name: str) -> str:
    """What a host's name resolves to; an address stays what it is. Raises OSError if it is not known."""
    return str(socket.getaddrinfo(name, None)[0][4][0])


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the name or address, as far as this machine knows it."""
    try:
        return ip_address(address_of(host)).is_loopback
    except (OSError, ValueError):
        return False


def has_address(address: str) -> bool:
    """Whether this machine has the address, also as a further one of an interface, which `interface_of` misses."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def interface_of(address: str) -> str:
    """The name of the interface that has `address`; empty if none is known to, as nowhere but on Linux."""
    wanted = _packed(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if found[20:24] == wanted:
                    return name
    if _IPV6.exists():
        for fields in map(str.split, _IPV6.read_text(encoding="ascii").splitlines()):
            if bytes.fromhex(fields[0]) == wanted:
                return fields[-1]
    # Loopback has more addresses than the one that it lists.
    return "lo" if address.startswith("127.") and "lo" in {name for _, name in socket.if_nameindex()} else ""


def _packed(address: str) -> bytes:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return socket.inet_pton(family, address.partition("%")[0])
    return b""
