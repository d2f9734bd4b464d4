"""gRPC clients of the orchestrator: one channel per address, all closed at shutdown."""

from __future__ import annotations

import grpc

from headrace.wire.access.roles import Role
from headrace.wire.peers.rpc import channel
from headrace.wire.v1 import rollout_pb2_grpc, trainer_pb2_grpc


class Clients:
    """Stubs by address."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, Role], grpc.aio.Channel] = {}

    def rollout(self, address: str) -> rollout_pb2_grpc.RolloutServiceAsyncStub:
        """The RolloutService at `address`."""
        return rollout_pb2_grpc.RolloutServiceStub(self._channel(address, Role.ROLLOUT))

    def trainer(self, address: str) -> trainer_pb2_grpc.TrainerServiceAsyncStub:
        """The TrainerService at `address`."""
        return trainer_pb2_grpc.TrainerServiceStub(self._channel(address, Role.TRAINER))

    def _channel(self, address: str, serves: Role) -> grpc.aio.Channel:
        if (address, serves) not in self._channels:
            self._channels[address, serves] = channel(address, serves)
        return self._channels[address, serves]

    async def close(self) -> None:
        """Closes all channels."""
        for open_channel in self._channels.values():
            await open_channel.close()
