"""A request that cannot be decoded is refused as such, and the server goes on."""

import grpc
import pytest

from headrace.wire.peers import rpc
from headrace.wire.v1 import trainer_pb2, trainer_pb2_grpc

_METHOD = "/wire.v1.TrainerService/SaveWeights"


class Trainer(trainer_pb2_grpc.TrainerServiceServicer):
    async def SaveWeights(self, request: object, context: object) -> trainer_pb2.SaveWeightsResponse:
        assert isinstance(request, trainer_pb2.SaveWeightsRequest)
        return trainer_pb2.SaveWeightsResponse()


@pytest.mark.parametrize("damaged", [b"\xff" * 100, b"\x0a\x7f"], ids=["garbage", "cut"])
async def test_a_damaged_request_is_rejected_as_malformed(damaged: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    add = trainer_pb2_grpc.add_TrainerServiceServicer_to_server
    server = await rpc.serve({"wire.v1.TrainerService": lambda made: add(Trainer(), made)}, "127.0.0.1", 0)
    async with rpc.channel(f"127.0.0.1:{server.port}") as opened:
        call = opened.unary_unary(_METHOD)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(damaged, timeout=20)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "bad_request: the request cannot be decoded" in str(refused.value.details())
        assert await call(b"", timeout=20) == b""
    await server.stop(0)
    assert "Traceback" not in capfd.readouterr().err
