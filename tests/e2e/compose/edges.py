"""Who connects to whom: read from the socket tables of running containers."""

import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.compose.project import Project, service_of

Edge = tuple[str, str, int | str]
"""(source service, target service, its port, or "ephemeral")."""
_ESTABLISHED, _LISTENS = "01", "0A"
FIXED = frozenset({3000, 6379, 7000, 8080, 9090, 29500})
"""Ports that are written in configs; all others are taken as they come."""
ROLES = {"prepare": "trainer"}
"""What is a step of another service: in Kubernetes it runs in the same pod."""
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Socket:
    """One line of a socket table; addresses are (IPv4, port)."""

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str


def parse_table(text: str) -> Iterator[Socket]:
    """/proc/net/tcp or tcp6."""
    for line in text.splitlines()[1:]:
        words = line.split()
        yield Socket(_address(words[1]), _address(words[2]), words[3])


def _address(word: str) -> tuple[str, int]:
    """Reads hexadecimal words in the machine's (little-endian) order; an IPv6 address by its last four bytes."""
    host, _, port = word.partition(":")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(host[-8:]))), int(port, 16)


def edges_of(
    tables: dict[str, list[Socket]], services: dict[str, str], stale: Collection[tuple[str, str]] = ()
) -> set[Edge]:
    """`tables` and `services` by container address; `stale`: pairs of addresses (source, target) that do not count.

    A connection counts when both of its ends are there: one whose peer is gone may name an address that another
    container has got. It leads to the side with a fixed port, or else to the one that listens on its port.
    """
    found = {(one.local, one.remote) for table in tables.values() for one in table if one.state == _ESTABLISHED}
    listening = {(host, one) for host, table in tables.items() for one in table if one.state == _LISTENS}
    everywhere = {(host, one.local[1]) for host, one in listening}
    alone = {one.local for host, one in listening if one.local[0] == host}
    edges: set[Edge] = set()
    for source, target in found:
        ours = source[0] in services and target[0] in services and (target, source) in found
        if not ours or services[source[0]] == services[target[0]] or (source[0], target[0]) in stale:
            continue
        if target[1] in FIXED:
            edges.add((services[source[0]], services[target[0]], target[1]))
        elif source[1] not in FIXED and target in everywhere:
            edges.add((services[source[0]], services[target[0]], "ephemeral"))
            if target in alone and any(host == source[0] for host, _ in alone):
                # Members of a gloo group all listen, each on its own address; who dials is a matter of their order.
                edges.add((services[target[0]], services[source[0]], "ephemeral"))
    return edges


def role_of(service: str) -> str:
    """`rollout-cpu` is the rollout service; `prepare` a step of the trainer's."""
    name = service.removesuffix("-cpu")
    return ROLES.get(name, name)


Tables = dict[str, list[Socket]]
"""Socket tables by container address."""


class Handed:
    """Addresses that another service took over while a process went on that had connected to the first owner.

    gRPC dials an address that it has resolved before it resolves the name again: a container that restarts at the
    address of another one is dialed by the peers of that one for a moment, which is no edge of its own.
    """

    def __init__(self) -> None:
        self._owners: dict[tuple[int, str], set[str]] = {}

    def look(self, containers: Iterable[dict[str, Any]], tables: Tables) -> set[tuple[str, str]]:
        """The pairs of addresses (source, target) whose source has been connected to two owners of the target."""
        there = [(service, pid, address) for service, pid, address in places(containers) if address]
        for _, pid, source in there:
            reached = {one.remote[0] for one in tables.get(source, ()) if one.state == _ESTABLISHED}
            for service, _, target in there:
                if target in reached:
                    self._owners.setdefault((pid, target), set()).add(role_of(service))
        return {
            (source, target)
            for _, pid, source in there
            for _, _, target in there
            if len(self._owners.get((pid, target), ())) > 1
        }


def tables_of(containers: Iterable[dict[str, Any]]) -> tuple[Tables, dict[str, str]]:
    """Socket tables and roles by address. The engine must run on this machine: they are read from its processes."""
    tables: Tables = {}
    services: dict[str, str] = {}
    for one in containers:
        table = Path(f"/proc/{one['State']['Pid']}/net")
        try:
            text = [(table / name).read_text() for name in ("tcp", "tcp6")]
        except OSError:
            continue  # It has ended meanwhile.
        sockets = [socket for part in text for socket in parse_table(part)]
        for network in one["NetworkSettings"]["Networks"].values():
            tables[network["IPAddress"]] = sockets
            services[network["IPAddress"]] = role_of(service_of(one))
    return tables, services


def places(containers: Iterable[dict[str, Any]]) -> set[tuple[str, int, str]]:
    """Which process has which address."""
    return {
        (service_of(one), int(one["State"]["Pid"]), str(network["IPAddress"]))
        for one in containers
        for network in one["NetworkSettings"]["Networks"].values()
    }


class Watch:
    """Collects the edges of a project from its start on, in a thread: some connections last for a moment only."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stop = threading.Event()
        self._handed = Handed()
        self.edges: set[Edge] = set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="edges")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            try:
                before = self._project.containers()
                tables, services = tables_of(before)
                edges = edges_of(tables, services, self._handed.look(before, tables))
                # Of two that restart at the same time one may get the other's address while they are looked at.
                if places(before) == places(self._project.containers()):
                    self.edges |= edges
            except AssertionError:
                continue  # A container that was listed is gone.

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(30)
