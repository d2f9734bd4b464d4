"""Ports: free ones are told from taken ones, and taken ones are named with their key."""

import socket

import pytest

from headrace.supervisor.ports import check_free, is_free, pick_ports
from wire.errors import ConfigError


def test_picked_ports_are_free_different_and_below_the_kernels_own_range() -> None:
    ports = pick_ports(20, taken=[20_000])
    assert len(set(ports)) == 20 and 20_000 not in ports
    assert all(is_free(port) and 10_080 < port < 32_768 for port in ports)


def test_a_taken_port_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"run.toml:3: \[trainer\] http_port = {port}: the port is in use"):
            check_free([(port, "run.toml:3: [trainer] http_port")])
    check_free([(port, "x")])


def test_a_port_wanted_twice_is_refused() -> None:
    (port,) = pick_ports(1)
    with pytest.raises(ConfigError, match="the same port as a"):
        check_free([(port, "a"), (port, "b")])
