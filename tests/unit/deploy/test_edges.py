"""How the test of the network edges reads socket tables."""

import socket
from pathlib import Path
from typing import Any

from tests.e2e.compose.edges import Handed, Socket, edges_of, parse_table, role_of

A, B = "172.20.0.2", "172.20.0.3"
SERVICES = {A: "trainer", B: "rollout"}


def line(local: tuple[str, int], remote: tuple[str, int], state: str = "01") -> Socket:
    return Socket(local, remote, state)


def both(source: tuple[str, int], target: tuple[str, int]) -> dict[str, list[Socket]]:
    """The tables of a connection, as its two ends have it."""
    return {source[0]: [line(source, target)], target[0]: [line(target, source)]}


def test_a_fixed_port_is_the_target() -> None:
    assert edges_of(both((A, 40000), (B, 7000)), SERVICES) == {("trainer", "rollout", 7000)}


def test_of_two_ephemeral_ports_the_one_that_listens_is_the_target() -> None:
    tables = both((B, 42000), (A, 41000))
    assert edges_of(tables, SERVICES) == set()
    tables[A].append(line(("0.0.0.0", 41000), ("0.0.0.0", 0), "0A"))
    assert edges_of(tables, SERVICES) == {("rollout", "trainer", "ephemeral")}


def test_where_both_listen_on_their_own_address_either_may_dial() -> None:
    tables = both((B, 42000), (A, 41000))
    tables[A].append(line((A, 41000), ("0.0.0.0", 0), "0A"))
    tables[B].append(line((B, 43000), ("0.0.0.0", 0), "0A"))
    assert edges_of(tables, SERVICES) == {("rollout", "trainer", "ephemeral"), ("trainer", "rollout", "ephemeral")}


def test_strangers_ones_own_connections_and_those_of_the_dead_are_no_edges() -> None:
    tables = {A: [line((A, 8080), ("172.20.0.1", 50000)), line((A, 8080), (A, 50001)), line((A, 40000), (B, 7000))]}
    assert edges_of(tables | {B: []}, SERVICES) == set()


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


def container(service: str, pid: int, address: str) -> dict[str, Any]:
    return {
        "Config": {"Labels": {"com.docker.compose.service": service}},
        "State": {"Pid": pid},
        "NetworkSettings": {"Networks": {"one": {"IPAddress": address}}},
    }


def test_an_address_that_another_service_took_over_is_no_edge_of_a_process_that_was_connected_to_the_first() -> None:
    handed = Handed()
    calls, answers = both((A, 40000), (B, 7000)), both((B, 40000), (A, 7000))
    assert handed.look([container("rollout", 1, A), container("trainer", 2, B)], calls) == set()
    swapped = [container("rollout", 1, A), container("reward", 3, B)]
    assert handed.look(swapped, calls) == {(A, B)}
    services = {A: "rollout", B: "reward"}
    assert edges_of(calls, services, handed.look(swapped, calls)) == set()
    assert edges_of(answers, services, handed.look(swapped, answers)) == {("reward", "rollout", 7000)}
    restarted = [container("rollout", 4, A), container("reward", 3, B)]
    assert handed.look(restarted, calls) == set(), "a new process knows no former owner"


def test_an_address_whose_former_owner_a_process_never_reached_is_an_edge() -> None:
    handed, calls = Handed(), both((A, 40000), (B, 8080))
    assert handed.look([container("prometheus", 1, A), container("prepare", 2, B)], {A: [], B: []}) == set()
    assert handed.look([container("prometheus", 1, A), container("orchestrator", 3, B)], calls) == set()
