"""gRPC at a unix socket: where a killed server has left one, and where it ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from headrace.wire.peers import rpc
from headrace.wire.v1 import trainer_pb2_grpc
from tests.unit.wire.peers.test_rpc_requests import Trainer

_METHOD = "/wire.v1.TrainerService/SaveWeights"
_SERVER = """
import asyncio, sys
from headrace.wire.peers import rpc
async def main():
    server = await rpc.serve({}, sys.argv[1], 0)
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "s"
    argv = [sys.executable, "-c", _SERVER, f"unix:{path}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline() == "up\n"
        server.send_signal(signal.SIGKILL)
    yield path


async def test_the_socket_of_a_killed_server_is_replaced(killed: Path) -> None:
    assert killed.is_socket()
    add = trainer_pb2_grpc.add_TrainerServiceServicer_to_server
    server = await rpc.serve({"wire.v1.TrainerService": lambda made: add(Trainer(), made)}, f"unix:{killed}", 0)
    async with rpc.channel(f"unix:{killed}") as opened:
        assert await opened.unary_unary(_METHOD)(b"", timeout=20) == b""
        await server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as away:
            await opened.unary_unary(_METHOD)(b"", timeout=20)
        assert away.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not killed.exists()
