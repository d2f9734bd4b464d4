"""Ports: free ones are told from taken ones, and taken ones are named with their key."""

import socket
import subprocess
import sys
from collections.abc import Iterable

import pytest

from headrace.supervisor.ports import check_free, is_free, pick_ports
from headrace.wire.errors import ConfigError


def test_picked_ports_are_free_different_and_below_the_kernels_own_range() -> None:
    ports = pick_ports(20, taken=[20_000])
    assert len(set(ports)) == 20 and 20_000 not in ports
    assert all(is_free(port) and 10_080 < port < 32_768 for port in ports)
    socket.create_server(("127.0.0.1", ports[0])).close()


OTHER = """
import sys
from headrace.supervisor import ports
taken = {int(port) for port in sys.argv[1].split(",")}
ports.random.sample = lambda *_: [*taken, *range(31_000, 31_500)]
print(*ports.pick_ports(3), flush=True)
sys.stdin.read()
"""


def other(taken: Iterable[int]) -> "subprocess.Popen[str]":
    """A process that would rather pick those that are taken; it holds what it picked until its stdin ends."""
    command = [sys.executable, "-c", OTHER, ",".join(map(str, taken))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def picked_by(process: "subprocess.Popen[str]") -> set[int]:
    assert process.stdout is not None
    return {int(port) for port in process.stdout.readline().split()}


def test_picked_ports_are_reserved_before_their_process_listens() -> None:
    ours = pick_ports(5)
    with other(ours) as first:
        theirs = picked_by(first)
        with other([*ours, *theirs]) as second:
            both = theirs | picked_by(second)
            second.communicate(timeout=60)
        first.communicate(timeout=60)
    assert len(both) == 6 and not both & set(ours)


def test_the_ports_of_a_process_that_is_killed_are_free_again() -> None:
    with other([31_600]) as first:
        theirs = picked_by(first)
        first.kill()
        first.wait(60)
    with other(theirs) as second:
        assert picked_by(second) == theirs
        second.communicate(timeout=60)


def test_a_taken_port_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"run.toml:3: \[trainer\] http_port = {port}: the port is in use"):
            check_free([(port, "run.toml:3: [trainer] http_port")])
    check_free([(port, "x")])
