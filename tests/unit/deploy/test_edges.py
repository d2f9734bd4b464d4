"""How the test of the network edges reads socket tables."""

import socket
from pathlib import Path

from tests.e2e.compose.edges import Socket, edges_of, parse_table, role_of

A, B = "172.20.0.2", "172.20.0.3"
SERVICES = {A: "trainer", B: "rollout"}


def line(local: tuple[str, int], remote: tuple[str, int], state: str = "01") -> Socket:
    return Socket(local, remote, state)


def test_a_fixed_port_is_the_target_from_whichever_side_it_is_seen() -> None:
    for tables in ({A: [line((A, 40000), (B, 7000))], B: []}, {A: [], B: [line((B, 7000), (A, 40000))]}):
        assert edges_of(tables, SERVICES) == {("trainer", "rollout", 7000)}


def test_of_two_ephemeral_ports_the_one_that_listens_is_the_target() -> None:
    listens = line(("0.0.0.0", 41000), ("0.0.0.0", 0), "0A")
    tables = {A: [listens, line((A, 41000), (B, 42000))], B: []}
    assert edges_of(tables, SERVICES) == {("rollout", "trainer", "ephemeral")}


def test_strangers_and_ones_own_connections_are_no_edges() -> None:
    tables = {A: [line((A, 8080), ("172.20.0.1", 50000)), line((A, 8080), (A, 50001))]}
    assert edges_of(tables, SERVICES) == set()


def test_the_kernels_tables_are_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            found = list(parse_table(Path("/proc/self/net/tcp").read_text()))
    assert line(("127.0.0.1", port), ("0.0.0.0", 0), "0A") in found
    assert any(one.remote == ("127.0.0.1", port) and one.state == "01" for one in found)


def test_an_ipv4_address_in_the_ipv6_table() -> None:
    text = "head\n 0: 0000000000000000FFFF0000020014AC:1B58 0000000000000000FFFF0000030014AC:9C40 01 x"
    assert list(parse_table(text)) == [line((A, 7000), (B, 40000))]


def test_flavours_and_steps_of_a_service_are_the_service() -> None:
    assert {role_of(name) for name in ("rollout", "rollout-cpu")} == {"rollout"}
    assert {role_of(name) for name in ("prepare", "prepare-cpu", "trainer-cpu")} == {"trainer"}
