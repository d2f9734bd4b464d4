"""Sockets are where no other user can enter, and where their paths can be bound."""

import socket
import string
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.config.services import LONGEST_SOCKET
from headrace.supervisor.socket_folder import SocketFolder
from headrace.wire.peers import rpc


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_a_folder_of_an_earlier_start_is_closed_to_others_and_goes_with_its_sockets(tmp_path: Path) -> None:
    folder = tmp_path / "rpc"
    folder.mkdir(mode=0o755)
    bind(folder / "left.sock")
    made = SocketFolder.make(folder, "s")
    assert made.path == folder and folder.stat().st_mode & 0o777 == 0o700
    bind(folder / "s")
    made.clean()
    assert not folder.exists()
    made.clean()


def test_the_first_path_that_is_too_long_is_replaced_by_a_private_folder(tmp_path: Path) -> None:
    for length in range(1, 120):
        made = SocketFolder.make(tmp_path / ("y" * length), LONGEST_SOCKET)
        bind(made.path / LONGEST_SOCKET)
        if made.path.parent != tmp_path:
            break
    assert length > 1 and made.path.stat().st_mode & 0o777 == 0o700
    made.clean()
    assert not made.path.exists()


async def test_grpc_is_served_and_found_in_a_folder_of_any_name(tmp_path: Path) -> None:
    for letter in (" ", "ü", *string.punctuation.replace("/", "")):
        made = SocketFolder.make(tmp_path / f"a{letter}41b", "s")
        server = await rpc.serve({}, f"unix:{made.path / 's'}", 0)
        async with rpc.channel(f"unix:{made.path / 's'}") as opened:
            answer = await health_pb2_grpc.HealthStub(opened).Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, letter
        await server.stop(0)
        made.clean()
