"""Ports for the services: picks free ones, and rejects taken ones before anything starts."""

import random
import socket
from collections.abc import Iterable
from pathlib import Path

from headrace.wire.errors import ConfigError

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_HOST = "127.0.0.1"
_LOWEST = 10_081
"""Browsers open no page on port 10080 (fetch.spec.whatwg.org/#port-blocking), nor on many below it."""


def is_free(port: int) -> bool:
    """Whether no process listens on the port."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def check_free(wanted: Iterable[tuple[int, str]]) -> None:
    """Raises ConfigError naming port and key of each (port, place) that is taken, or wanted twice."""
    errors: list[str] = []
    seen: dict[int, str] = {}
    for port, place in wanted:
        if port in seen:
            errors.append(f"{place} = {port}: the same port as {seen[port]}")
        elif not is_free(port):
            errors.append(
                f"{place} = {port}: the port is in use by another process; choose another, or 0 for a free one"
            )
        seen[port] = place
    if errors:
        raise ConfigError("\n".join(errors))


def pick_ports(count: int, *, taken: Iterable[int] = ()) -> list[int]:
    """Picks free ports below the range that the kernel uses for outgoing connections.

    A restarted service needs its port again, so no client may have got it meanwhile. Nor may another run: an engine
    loads for minutes before it listens, so this process holds the ports for its life.
    """
    highest = _first_ephemeral() - 1
    used = set(taken)
    ports: list[int] = []
    for port in random.sample(range(_LOWEST, highest), min(highest - _LOWEST, 5000)):
        if len(ports) == count:
            break
        if port not in used and _hold(port):
            ports.append(port)
    if len(ports) < count:
        raise ConfigError(f"only {len(ports)} of {count} free ports were found on {_HOST}")
    return ports


def _hold(port: int) -> bool:
    """Binds the port so that a server can still listen on it, but no other process pick it; False if it is taken."""
    holder = socket.socket()
    try:
        holder.bind((_HOST, port))
    except OSError:
        holder.close()
        return False
    # Only now: Linux lets two sockets share a port if both have the option, as servers do, and none listens yet.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.detach()  # Open until this process ends.
    return True


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > _LOWEST + 5000 else 32_768
